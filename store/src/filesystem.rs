//! File systems on which processes can share memory through a file.

use std::path::Path;

/// Returns whether SQLite's write-ahead log can use shared memory here. An unknown file system counts as local.
#[cfg(target_os = "linux")]
pub(crate) fn has_shared_memory(path: &Path) -> bool {
    match nix::sys::statfs::statfs(path) {
        #[allow(clippy::useless_conversion, reason = "the number's width depends on the platform")]
        Ok(found) => !is_remote(i64::from(found.filesystem_type().0)),
        Err(_) => true,
    }
}

/// Returns true: on other platforms only the command line runs, on local disks.
#[cfg(not(target_os = "linux"))]
pub(crate) fn has_shared_memory(_path: &Path) -> bool {
    true
}

/// Returns whether a file system is remote, so that two hosts do not share the memory of a mapped file. The numbers
/// are those of statfs(2) and of the file systems' headers.
#[cfg(target_os = "linux")]
fn is_remote(kind: i64) -> bool {
    const NFS: i64 = 0x6969;
    const LUSTRE: i64 = 0x0BD0_0BD0;
    const GPFS: i64 = 0x4750_4653;
    const BEEGFS: i64 = 0x1983_0326;
    const CEPH: i64 = 0x00C3_6400;
    const PANFS: i64 = 0xAAD7_AAEA;
    const PLAN9: i64 = 0x0102_1997;
    const FUSE: i64 = 0x6573_5546;
    const SMB: i64 = 0x517B;
    const CIFS: i64 = 0xFF53_4D42;
    const SMB2: i64 = 0xFE53_4D42;
    const AFS: i64 = 0x5346_414F;
    // Some platforms sign-extend the number.
    let kind = kind & 0xFFFF_FFFF;
    [NFS, LUSTRE, GPFS, BEEGFS, CEPH, PANFS, PLAN9, FUSE, SMB, CIFS, SMB2, AFS].contains(&kind)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn network_and_fuse_file_systems_are_remote() {
        let cases = [
            ("nfs", 0x6969, true),
            ("lustre", 0x0BD0_0BD0, true),
            ("gpfs", 0x4750_4653, true),
            ("beegfs", 0x1983_0326, true),
            ("ceph", 0x00C3_6400, true),
            ("panfs", 0xAAD7_AAEA, true),
            ("9p", 0x0102_1997, true),
            ("fuse", 0x6573_5546, true),
            ("smb", 0x517B, true),
            ("cifs", 0xFF53_4D42, true),
            ("cifs with a sign", -0x00AC_B2BE, true),
            ("smb2", 0xFE53_4D42, true),
            ("afs", 0x5346_414F, true),
            ("ext4", 0xEF53, false),
            ("xfs", 0x5846_5342, false),
            ("btrfs", 0x9123_683E, false),
            ("tmpfs", 0x0102_1994, false),
            ("overlayfs", 0x794C_7630, false),
        ];
        for (name, kind, expected) in cases {
            assert_eq!(is_remote(kind), expected, "{name}");
        }
    }

    #[test]
    fn unknown_file_systems_count_as_local() {
        for path in ["/dev/shm", "/does/not/exist"] {
            assert!(has_shared_memory(Path::new(path)), "{path}");
        }
    }
}
