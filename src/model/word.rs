//! Closed lists whose values are words: in labels, in JSON, in records. Each word is said once.

/// Makes such an enum, with all that can be asked of it.
macro_rules! words {
    ($(#[$of:meta])* pub enum $name:ident { $($(#[$doc:meta])* $value:ident = $word:literal,)+ }) => {
        $(#[$of])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        pub enum $name {
            $($(#[$doc])* #[serde(rename = $word)] $value,)+
        }

        impl $name {
            pub const ALL: [$name; [$($word),+].len()] = [$($name::$value),+];
            pub const fn as_str(self) -> &'static str {
                match self {
                    $($name::$value => $word,)+
                }
            }
            pub fn parse(text: &str) -> Option<$name> {
                $name::ALL.into_iter().find(|value| value.as_str() == text)
            }
            /// Its place in `ALL`.
            pub fn index(self) -> usize {
                self as usize
            }
        }
    };
}

pub(crate) use words;

#[cfg(test)]
mod tests {
    use crate::model::task::Outcome;

    #[test]
    fn outcome_names_are_equal_in_labels_and_json_and_parse_back() {
        for (at, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(serde_json::to_value(outcome).unwrap(), outcome.as_str());
            assert_eq!((Outcome::parse(outcome.as_str()), outcome.index()), (Some(outcome), at));
        }
        assert_eq!(Outcome::parse("sucess"), None);
    }
}
