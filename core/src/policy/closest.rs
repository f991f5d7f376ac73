//! Suggestions for misspelled words.

/// Returns the known word with the smallest edit distance to `word`, if this distance is small
/// enough for a suggestion.
pub(super) fn closest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    known
        .iter()
        .map(|&known| (distance(word, known), known))
        .min()
        .filter(|&(distance, known)| distance <= known.len() / 3 + 1)
        .map(|(_, known)| known)
}

fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    // Only the first 32 characters are compared, because no keyword is longer.
    for (i, a) in from.chars().take(32).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.chars().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row.last().copied().unwrap_or(0) + from.chars().count().saturating_sub(32)
}
