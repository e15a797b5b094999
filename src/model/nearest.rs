//! Which word did they mean?

/// The nearest of `words` to a misspelt one; `None` if none is near. The first of equals.
pub fn nearest<'w>(word: &str, words: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    let word: Vec<char> = word.to_lowercase().chars().take(64).collect();
    let allowed = match word.len() {
        0 => return None,
        1..=5 => 1,
        6..=8 => 2,
        _ => 3,
    };
    let mut best = None;
    for candidate in words {
        let other: Vec<char> = candidate.to_lowercase().chars().collect();
        let d = distance(&word, &other);
        // Of a short word something must remain.
        if d <= allowed && d < other.len() && best.is_none_or(|(least, _)| d < least) {
            best = Some((d, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Insertions, deletions, replacements and swaps of neighbours that make `b` of `a`.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, &x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &y) in b.iter().enumerate() {
            let mut least = (last[j] + usize::from(x != y)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && x == b[j - 1] && a[i - 1] == y {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_word_finds_its_neighbour_and_a_strange_one_none() {
        let words = ["memory", "memory_max", "cpu"];
        assert_eq!(nearest("memroy", words), Some("memory"));
        assert_eq!(nearest("Memory", words), Some("memory"));
        assert_eq!(nearest("memorymax", words), Some("memory_max"));
        assert_eq!(nearest("cpus", words), Some("cpu"));
        assert_eq!(nearest("volume", words), None);
        assert_eq!(nearest("wait", ["fail", "delay"]), None);
        assert_eq!(nearest("", words), None);
        assert_eq!(nearest("x", ["y"]), None);
    }
}
