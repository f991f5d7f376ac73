use std::fs;

use super::*;

const LATE: &str = "time,ip\n\
    2015-05-17 00:00:05,a\n\
    2015-05-17 00:00:07,b\n\
    2015-05-17 00:00:05,c\n\
    2015-05-17 00:00:06,d\n\
    2015-05-17 00:00:05,e\n";

fn names(kept: &Kept) -> Vec<&str> {
    kept.records.iter().map(|record| record.1.as_str()).collect()
}

#[test]
fn order_of_time_is_a_stable_sort() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("late.csv");
    fs::write(&path, LATE).unwrap();
    for inputs in [vec![Input::from_arg(&path)], vec![bytes(LATE)]] {
        let mut kept = Kept::default();
        let summary = replay_in_order(inputs, &Options::default(), Order::Time, &mut kept).unwrap();
        assert_eq!(names(&kept), ["a", "c", "e", "d", "b"]);
        assert_eq!(kept.restarts, 1);
        assert_eq!((summary.records, summary.steps_back, summary.sorted), (5, 2, true));
        assert_eq!(summary.last.unwrap() - summary.first.unwrap(), 2_000_000);
        assert_eq!(summary.subjects.iter().collect::<Vec<_>>(), [b"a", b"b", b"c", b"d", b"e"]);
        assert_eq!(summary.files.len(), 1);
        assert_eq!(summary.files[0].records, 5);
    }
}

#[test]
fn order_of_the_file_never_steps_back() {
    let (kept, summary) = read(LATE, &Options::default()).unwrap();
    assert_eq!(names(&kept), ["a", "b", "c", "d", "e"]);
    let times: Vec<u64> = kept.records.iter().map(|record| record.0 / 1_000_000 % 10).collect();
    assert_eq!(times, [5, 7, 7, 7, 7]);
    assert_eq!((kept.restarts, summary.sorted, summary.steps_back), (0, false, 2));
}

#[test]
fn equal_times_are_no_step_back() {
    let text = "time,ip\n2015-05-17,a\n2015-05-17,b\n";
    let mut kept = Kept::default();
    let summary = replay_in_order(vec![bytes(text)], &Options::default(), Order::Time, &mut kept);
    assert_eq!((kept.restarts, summary.unwrap().sorted), (0, false));
}

#[test]
fn a_second_input_from_before_the_first_is_sorted_in() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new.csv");
    fs::write(&path, "time,ip\n2015-05-19,new\nbad\n").unwrap();
    let old = "time,ip\n2015-05-18,old\nbad\n";
    let other = directory.path().join("old.csv");
    fs::write(&other, old).unwrap();
    for inputs in [
        vec![Input::from_arg(&path), Input::from_arg(&other)],
        vec![Input::from_arg(&path), bytes(old)],
    ] {
        let mut kept = Kept::default();
        let summary = replay_in_order(inputs, &Options::default(), Order::Time, &mut kept).unwrap();
        assert_eq!(names(&kept), ["old", "new"]);
        assert_eq!(
            summary.malformed, 2,
            "each malformed line counts once, however often it is read"
        );
        assert_eq!(summary.files.iter().map(|file| file.malformed).collect::<Vec<_>>(), [1, 1]);
    }
}

#[test]
fn an_error_of_the_sink_ends_the_replay() {
    #[derive(Debug)]
    struct Full;
    impl From<Error> for Full {
        fn from(_: Error) -> Self {
            Self
        }
    }
    struct Three(u32);
    impl Sink for Three {
        type Error = Full;
        fn record(&mut self, _: Record, _: &Subjects) -> Result<(), Full> {
            self.0 += 1;
            if self.0 == 3 { Err(Full) } else { Ok(()) }
        }
        fn restart(&mut self) {
            self.0 = 0;
        }
    }
    for order in [Order::File, Order::Time] {
        let mut sink = Three(0);
        assert!(replay_in_order(vec![bytes(LATE)], &Options::default(), order, &mut sink).is_err());
        assert_eq!(sink.0, 3);
    }
}
