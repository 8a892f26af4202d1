//! Authentication of ssh to a login node: with the key of a Secret, to the hosts that the Secret knows.

use std::path::Path;

/// Returns the command prefix of a cluster. The paths of the Secret's files precede the options of the document. ssh
/// uses the first value of an option, so a document cannot name other keys.
pub(super) fn prefix(words: &[String], secret: Option<&str>, folder: Option<&Path>) -> Vec<String> {
    let (Some((program, rest)), Some(secret), Some(folder)) = (words.split_first(), secret, folder) else {
        return words.to_vec();
    };
    if Path::new(program).file_name().is_none_or(|name| name != "ssh") {
        return words.to_vec();
    }
    let file = |name: &str| folder.join(secret).join(name).to_string_lossy().into_owned();
    let options = [
        format!("IdentityFile={}", file("id_ed25519")),
        "IdentitiesOnly=yes".to_owned(),
        format!("UserKnownHostsFile={}", file("known_hosts")),
        "StrictHostKeyChecking=yes".to_owned(),
        "BatchMode=yes".to_owned(),
        "ConnectTimeout=10".to_owned(),
    ];
    let options = options.into_iter().flat_map(|option| ["-o".to_owned(), option]);
    std::iter::once(program.clone()).chain(options).chain(rest.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ssh_is_told_where_the_keys_are() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let folder = Some(Path::new("/etc/torc/ssh"));
        let keyed = "ssh -o IdentityFile=/etc/torc/ssh/lab/id_ed25519 -o IdentitiesOnly=yes -o \
                     UserKnownHostsFile=/etc/torc/ssh/lab/known_hosts -o StrictHostKeyChecking=yes -o BatchMode=yes -o \
                     ConnectTimeout=10 -p 22 login1";
        for (written, secret, folder, expected) in [
            ("ssh -p 22 login1", Some("lab"), folder, keyed),
            ("ssh -p 22 login1", None, folder, "ssh -p 22 login1"),
            ("ssh -p 22 login1", Some("lab"), None, "ssh -p 22 login1"),
            ("env A=1", Some("lab"), folder, "env A=1"),
        ] {
            assert_eq!(prefix(&words(written), secret, folder), words(expected));
        }
        assert_eq!(prefix(&words("/usr/bin/ssh h"), Some("lab"), folder)[..2], ["/usr/bin/ssh", "-o"]);
        assert_eq!(prefix(&[], Some("lab"), folder), Vec::<String>::new());
    }
}
