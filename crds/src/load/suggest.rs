//! The known word that a person most likely meant.

/// The known word nearest to an unknown one, if any is near.
pub(crate) fn nearest<'k>(unknown: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let folded = fold(unknown);
    let allowed = (folded.chars().count() / 3).clamp(1, 3);
    known
        .map(|word| (strsim::damerau_levenshtein(&folded, &fold(word)), word))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, word)| word)
}

/// Case, underscores and hyphens are not what a person gets wrong about the meaning. Long words are cut: nothing
/// that we know is longer, and the distance costs the product of the lengths.
fn fold(word: &str) -> String {
    word.chars().filter(|letter| !matches!(letter, '_' | '-')).take(80).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn near_words_are_offered_and_far_ones_are_not() {
        let known = ["command", "dependsOn", "name", "env", "inputFiles"];
        let cases = [
            ("comand", Some("command")),
            ("commnad", Some("command")),
            ("depends_on", Some("dependsOn")),
            ("depend_on", Some("dependsOn")),
            ("nam", Some("name")),
            ("inputFile", Some("inputFiles")),
            ("colour", None),
            ("x", None),
        ];
        for (unknown, expected) in cases {
            assert_eq!(nearest(unknown, known.into_iter()), expected, "{unknown}");
        }
    }
}
