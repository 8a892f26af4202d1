//! Converts the name of a bare file to one that Kubernetes and file systems accept.

/// The largest length of a workflow's name in characters. Names of objects that derive from it are longer, and
/// Kubernetes limits them.
pub const MAX_NAME_CHARS: usize = 52;

/// Returns a name of lower-case letters, digits and hyphens. A hash distinguishes names that are cut, or that have no
/// usable letter.
pub(super) fn slug(name: &str) -> String {
    let mut slug = String::new();
    for letter in name.chars().flat_map(char::to_lowercase) {
        if letter.is_ascii_alphanumeric() {
            slug.push(letter);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() {
        return format!("workflow-{:08x}", fingerprint(name));
    }
    match slug.get(..MAX_NAME_CHARS - 9) {
        Some(beginning) if slug.len() > MAX_NAME_CHARS => {
            format!("{}-{:08x}", beginning.trim_end_matches('-'), fingerprint(name))
        }
        _ => slug.to_owned(),
    }
}

/// Returns the FNV-1a hash, which is the same on every machine and in every version.
fn fingerprint(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of objects must not change from one version to the next.
    #[test]
    fn marks_are_the_same_in_every_version() {
        let cases = [
            ("日本".to_owned(), "workflow-9f26ee51".to_owned()),
            (String::new(), "workflow-811c9dc5".to_owned()),
            ("a".to_owned(), "a".to_owned()),
            ("b".repeat(52), "b".repeat(52)),
            ("b".repeat(53), format!("{}-a3a0f265", "b".repeat(43))),
            (format!("{}-{}", "c".repeat(42), "d".repeat(20)), format!("{}-1377b372", "c".repeat(42))),
        ];
        for (name, expected) in cases {
            assert_eq!(slug(&name), expected);
        }
    }

    #[test]
    fn names_become_slugs() {
        let cases = [
            ("diamond", "diamond"),
            ("ML Training with Auto-Scaling", "ml-training-with-auto-scaling"),
            ("my_workflow", "my-workflow"),
            ("  --A..B--  ", "a-b"),
            ("Überlauf 2", "berlauf-2"),
        ];
        for (name, expected) in cases {
            assert_eq!(slug(name), expected);
        }
        let long = "a".repeat(60);
        assert_eq!(slug(&long).len(), MAX_NAME_CHARS);
        assert_ne!(slug(&format!("{long}1")), slug(&format!("{long}2")));
        assert_eq!(slug(&"a".repeat(MAX_NAME_CHARS)), "a".repeat(MAX_NAME_CHARS));
        assert_ne!(slug("日本"), slug("中国"));
        assert!(slug("日本").starts_with("workflow-"));
    }
}
