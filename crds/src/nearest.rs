//! Suggests known words for misspelled ones.

/// The number of letters that are compared. The cost of a distance is the product of the lengths.
const MAX_COMPARED: usize = 80;

/// Returns the known word that is nearest to an unknown one, if any is near; of several, the first in the alphabet.
///
/// Near is at most one edit for every three letters, and at most three in all. Case, underscores and hyphens do not
/// count.
pub fn nearest<'k>(unknown: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let length = letters(unknown).count();
    let folded: String = letters(unknown).collect();
    let allowed = (length / 3).clamp(1, 3);
    known
        .filter(|word| letters(word).count().abs_diff(length) <= allowed)
        .map(|word| (strsim::osa_distance(&folded, &letters(word).collect::<String>()), word))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, word)| word)
}

fn letters(word: &str) -> impl Iterator<Item = char> {
    word.chars().filter(|letter| !matches!(letter, '_' | '-')).take(MAX_COMPARED).flat_map(char::to_lowercase)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn near_words_are_offered_and_far_ones_are_not() {
        let known = ["command", "dependsOn", "name", "env", "inputFiles", "preprocess", "postprocess", "work_1"];
        let cases = [
            ("comand", Some("command")),
            ("commnad", Some("command")),
            ("depends_on", Some("dependsOn")),
            ("depend_on", Some("dependsOn")),
            ("nam", Some("name")),
            ("inputFile", Some("inputFiles")),
            ("preproces", Some("preprocess")),
            ("work_2", Some("work_1")),
            ("colour", None),
            ("zzz", None),
            ("x", None),
            ("", None),
        ];
        for (unknown, expected) in cases {
            assert_eq!(nearest(unknown, known.into_iter()), expected, "{unknown}");
        }
    }

    #[test]
    fn case_underscores_and_hyphens_do_not_count() {
        assert_eq!(nearest("A_B-C", ["abc"].into_iter()), Some("abc"));
        assert_eq!(nearest("Work-Item_1", ["workitem1", "work_item_2"].into_iter()), Some("workitem1"));
    }

    #[test]
    fn long_words_may_have_more_slips_up_to_three() {
        let cases = [
            (1, 1, true),
            (5, 1, true),
            (5, 2, false),
            (6, 2, true),
            (8, 3, false),
            (9, 3, true),
            (12, 4, false),
            (40, 3, true),
            (40, 4, false),
        ];
        for (length, slips, expected) in cases {
            let name = "a".repeat(length);
            let other = format!("{}{}", "b".repeat(slips), "a".repeat(length - slips));
            let found = nearest(&name, [other.as_str()].into_iter());
            assert_eq!(found.is_some(), expected, "{slips} of {length} letters");
            // Letters that are missing count, too.
            let shorter = "a".repeat(length - slips);
            let found = nearest(&name, [shorter.as_str()].into_iter());
            assert_eq!(found.is_some(), expected, "{length} letters without {slips}");
        }
    }

    #[test]
    fn the_nearest_of_several_is_offered() {
        let known = ["abcdefxy", "abcdefgx", "abcdxxgh"];
        assert_eq!(nearest("abcdefgh", known.into_iter()), Some("abcdefgx"));
        assert_eq!(
            nearest("ab", ["ac", "aa"].into_iter()),
            Some("aa"),
            "the first in the alphabet of two that are as near"
        );
    }
}
