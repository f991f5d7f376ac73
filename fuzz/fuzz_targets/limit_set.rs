//! Any text is parsed to a limit set, or is rejected. The printed form of the set is parsed to the
//! same set, and each line of it has the key under which the set contains the line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_core::LimitSet;

fuzz_target!(|text: &str| {
    let Ok(set) = text.parse::<LimitSet>() else { return };
    let printed = set.to_string();
    let mut again: LimitSet = printed.parse().unwrap();
    assert_eq!(again, set, "{printed}");
    for (key, line) in set.lines() {
        assert_eq!(LimitSet::key_of(&line).unwrap(), key);
        assert_eq!(again.remove_line(&line), Ok(true));
    }
    assert!(again.is_empty());
});
