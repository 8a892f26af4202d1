//! Quotes words for a POSIX shell.

/// Quotes a word for a POSIX shell: plain words stay as they are, others get single quotes.
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,=@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Returns a line of quoted words.
pub fn line<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().map(quote).collect::<Vec<String>>().join(" ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_words_stay_readable() {
        let cases = [
            ("--format=JobID,State", "--format=JobID,State"),
            ("%i|%j", "'%i|%j'"),
            ("", "''"),
            ("it's", r"'it'\''s'"),
            ("a b", "'a b'"),
            ("$HOME", "'$HOME'"),
            ("~", "'~'"),
            ("line\nline", "'line\nline'"),
        ];
        for (word, quoted) in cases {
            assert_eq!(quote(word), quoted);
        }
        assert_eq!(line(["squeue", "-o", "%i|%j"]), "squeue -o '%i|%j'");
    }

    #[test]
    fn only_these_characters_need_no_quotes() {
        let plain: String = (0..=127_u8).map(char::from).filter(|c| quote(&c.to_string()) == c.to_string()).collect();
        assert_eq!(plain, "%+,-./0123456789:=@ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz");
        assert_eq!(quote("é"), "'é'");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn a_real_shell_reads_the_same_words(words in proptest::collection::vec("[^\0]{0,12}", 1..6)) {
            let script = format!("printf '%s\\0' {}", line(words.iter().map(String::as_str)));
            let output = std::process::Command::new("sh").arg("-c").arg(script).output().unwrap();
            let read: Vec<String> =
                String::from_utf8(output.stdout).unwrap().split_terminator('\0').map(str::to_owned).collect();
            prop_assert_eq!(read, words);
        }
    }
}
