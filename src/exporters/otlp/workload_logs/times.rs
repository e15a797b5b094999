//! When a task wrote a line, as its supervisor recorded it, to the second.

use super::files::OutputDirectory;
use super::positions::OutputPlace;
use crate::model::units::Timestamp;
use crate::supervisor::order::{ORDER_RECORD, OrderRecord};

/// Of the newest records: two streams that take turns have many.
const READ: usize = 2048 * ORDER_RECORD;

/// The newest records of one stream, in its order.
#[derive(Debug, Default)]
pub(super) struct OutputTimes {
    records: Vec<(OutputPlace, Timestamp)>,
    /// Nothing older was left out.
    is_whole: bool,
}

impl OutputTimes {
    /// Numbers of a task's files of records. None if they cannot be listed.
    pub fn files(directory: &OutputDirectory, task: &str) -> Vec<u64> {
        directory.numbers(&prefix(task)).unwrap_or_default()
    }

    /// `stream`: 0 stdout, 1 stderr. Empty if there are none, or they cannot be read.
    pub fn read(directory: &OutputDirectory, task: &str, (stream, numbers): (usize, &[u64])) -> OutputTimes {
        let mut times = OutputTimes { records: Vec::new(), is_whole: numbers.len() <= 1 };
        let Some(newest) = numbers.last() else { return times };
        let name = format!("{}{newest}", prefix(task));
        let size = directory.size(&name).ok().flatten().unwrap_or(0);
        let whole = size - size % ORDER_RECORD as u64;
        let from = whole.saturating_sub(READ as u64);
        times.is_whole &= from == 0;
        let bytes = directory.read(&name, from, READ).unwrap_or_default();
        let records = bytes.as_chunks::<ORDER_RECORD>().0.iter().filter_map(OrderRecord::parse);
        let own = records.filter(|record| record.stream == stream);
        times.records = own
            .map(|record| (OutputPlace { file: record.place.0, bytes: record.place.1 }, Timestamp(record.nanos)))
            .collect();
        times
    }

    /// When the output had reached this place. `None`: not recorded yet, or no longer.
    pub fn at(&self, place: OutputPlace) -> Option<Timestamp> {
        let at = self.records.partition_point(|(reached, _)| *reached < place);
        let (_, time) = self.records.get(at)?;
        (at > 0 || self.is_whole).then_some(*time)
    }
}

fn prefix(task: &str) -> String {
    format!("{task}.order.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(directory: &OutputDirectory, task: &str, stream: usize) -> OutputTimes {
        OutputTimes::read(directory, task, (stream, &OutputTimes::files(directory, task)))
    }

    #[test]
    fn line_has_the_time_of_the_first_record_at_or_behind_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let records = [(10, 0, (0, 5)), (20, 1, (0, 99)), (30, 0, (0, 9)), (40, 0, (1, 3))];
        let bytes: Vec<u8> = records
            .into_iter()
            .flat_map(|(nanos, stream, place)| OrderRecord { nanos, stream, place }.bytes())
            .chain([1, 2, 3])
            .collect();
        std::fs::write(dir.path().join("t.order.0"), &bytes).unwrap();
        let directory = OutputDirectory::open(dir.path()).unwrap();
        let times = read(&directory, "t", 0);
        let at = |file, bytes| times.at(OutputPlace { file, bytes }).map(|time| time.0);
        assert_eq!(
            [at(0, 1), at(0, 5), at(0, 6), at(0, 9), at(1, 1), at(1, 4)],
            [Some(10), Some(10), Some(30), Some(30), Some(40), None]
        );
        assert_eq!(read(&directory, "t", 1).at(OutputPlace { file: 0, bytes: 1 }), Some(Timestamp(20)));
        assert_eq!(read(&directory, "none", 0).at(OutputPlace::default()), None);
        // An older file is not read: what is before the first record may be much older.
        std::fs::write(dir.path().join("t.order.1"), &bytes).unwrap();
        assert_eq!(read(&directory, "t", 0).at(OutputPlace { file: 0, bytes: 1 }), None);
    }
}
