//! The folder of a store: the database and the files next to it.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use torc_api::token::{Credential, Fingerprint};
use torc_controller::tls::{self, TlsFiles};
use torc_core::tokens::TokenKey;

use crate::client::Trust;
use crate::error::{CliError, ExitStatus};
use crate::host::host_name;
use crate::listen_args::resolve;

/// The default folder of a store.
pub const FOLDER: &str = ".torc";
const DATABASE: &str = "torc.db";

/// The files of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreDir {
    pub folder: PathBuf,
    pub database: PathBuf,
    prefix: String,
}

/// The current owner of a store and its addresses, as the owner file contains them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerInfo {
    pub host: String,
    pub pid: u32,
    /// The URL for all machines.
    pub url: String,
    /// The file with the administrators' token.
    pub token_file: PathBuf,
    /// The start of the owner, in RFC 3339.
    pub start_time: String,
    /// True if the owner also runs jobs.
    #[serde(default)]
    pub runner: bool,
    /// The URL on the owner's host, if it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_url: Option<String>,
    /// The fingerprint of a self-signed certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_sha256: Option<Fingerprint>,
    /// The file of a certificate that the user set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_file: Option<PathBuf>,
}

impl ServerInfo {
    /// Reads an owner file.
    pub fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    }

    /// Returns the URL to use on this host.
    pub fn url_from_here(&self) -> &str {
        self.local_url.as_deref().filter(|_| self.host == host_name()).unwrap_or(&self.url)
    }

    /// Returns the certificates to accept from the owner.
    pub fn trust(&self) -> Trust {
        match (&self.certificate_sha256, &self.certificate_file) {
            (Some(fingerprint), _) => Trust::Certificate(*fingerprint),
            (None, Some(file)) if file.exists() => Trust::SameAs(file.clone()),
            _ => Trust::System,
        }
    }
}

/// The pin of the server's certificate in the token file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinUpdate {
    /// Keep the current pin: a server with plain HTTP on loopback has no certificate.
    Keep,
    /// No pin: a CA signed the certificate.
    Remove,
    /// Pin this self-signed certificate.
    Certificate(Fingerprint),
}

/// The lock of a store; dropping it releases the store.
pub type Lock = Flock<File>;

impl StoreDir {
    /// Finds the store of a folder or of the nearest folder above.
    pub fn find(from: &Path) -> Option<Self> {
        from.ancestors().map(|folder| folder.join(FOLDER)).find(|folder| folder.is_dir()).map(Self::in_folder)
    }

    /// Returns the store of a `.torc` folder.
    pub fn in_folder(folder: PathBuf) -> Self {
        Self { database: folder.join(DATABASE), folder, prefix: String::new() }
    }

    /// Returns the store of a database: a path or a `sqlite:` URL.
    pub fn of_database(path_or_url: &str, current: &Path) -> Result<Self, CliError> {
        let path = match path_or_url.split_once(':') {
            Some(("sqlite", rest)) => rest.strip_prefix("//").unwrap_or(rest),
            Some((scheme, _)) if scheme.len() > 1 && path_or_url.contains("://") => {
                let message = format!("`{scheme}` databases are not supported; use a path or a `sqlite:` URL");
                return Err(CliError::invalid(message));
            }
            _ => path_or_url,
        };
        let database = current.join(path);
        let (Some(folder), Some(name)) = (database.parent(), database.file_name()) else {
            return Err(CliError::invalid(format!("'{path_or_url}' is not the path of a file")));
        };
        let name = name.to_string_lossy();
        let prefix = if name == DATABASE { String::new() } else { format!("{name}.") };
        Ok(Self { folder: folder.to_owned(), prefix, database })
    }

    /// Returns the file with the administrators' token.
    pub fn token_file(&self) -> PathBuf {
        self.beside("token")
    }

    /// Returns the log file of a background server.
    pub fn log_file(&self) -> PathBuf {
        self.beside("server.log")
    }

    /// Returns the state folder of the local runner and its shim.
    pub fn runner_folder(&self) -> PathBuf {
        self.beside("runner")
    }

    /// Returns the folder with the credentials of runners in Slurm allocations, as an absolute path for other machines.
    pub fn allocations_folder(&self) -> Result<PathBuf, CliError> {
        std::path::absolute(self.beside("allocations")).map_err(|error| self.unusable(error))
    }

    /// Replaces port 0 by the port of a dead owner, if it is free. The owner's runners try to reconnect to it.
    pub fn same_port(&self, bind: SocketAddr) -> SocketAddr {
        let port = || {
            let info = self.server_info().filter(|info| info.host == host_name())?;
            info.url_from_here().rsplit(':').next()?.trim_end_matches('/').parse::<u16>().ok()
        };
        let wanted = port().map(|port| SocketAddr::new(bind.ip(), port)).filter(|_| bind.port() == 0);
        wanted.filter(|address| std::net::TcpListener::bind(address).is_ok()).unwrap_or(bind)
    }

    /// Returns the recorded listening address, if this machine has it. Unlike the owner file, the record outlives the owner.
    pub fn last_bind(&self) -> Option<String> {
        let bind = std::fs::read_to_string(self.beside("bind")).ok()?;
        let address = resolve(bind.trim()).ok()?;
        std::net::TcpListener::bind((address.ip(), 0)).ok()?;
        Some(SocketAddr::new(address.ip(), 0).to_string())
    }

    /// Records the listening address for later servers of the store without a configured address.
    pub fn record_bind(&self, bind: &str) {
        // Without the record, the next server uses the default address.
        let _ = self.write_private(&self.beside("bind"), format!("{bind}\n").as_bytes());
    }

    /// Returns the owner file.
    pub fn server_file(&self) -> PathBuf {
        self.beside("server.json")
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{}{name}", self.prefix))
    }

    /// Creates the folder with mode 0700.
    pub fn create_folder(&self) -> Result<(), CliError> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder).map_err(|error| self.unusable(error))
    }

    /// Locks the store; returns `None` if another process holds the lock.
    pub fn try_lock(&self) -> Result<Option<Lock>, CliError> {
        let path = self.beside("lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| self.unusable(error))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Some(lock)),
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, error)) => Err(self.unusable(error.into())),
        }
    }

    /// Reads the owner file.
    pub fn server_info(&self) -> Option<ServerInfo> {
        ServerInfo::read(&self.server_file())
    }

    /// Writes the owner file.
    pub fn write_server_info(&self, info: &ServerInfo) -> Result<(), CliError> {
        let text = format!("{:#}\n", serde_json::json!(info));
        self.write_private(&self.server_file(), text.as_bytes()).map_err(|error| self.unusable(error))
    }

    /// Removes the owner file.
    pub fn remove_server_info(&self) {
        // The free lock shows that a remaining file is stale.
        let _ = std::fs::remove_file(self.server_file());
    }

    /// Returns the administrators' token and updates the pin in its file. The first call creates the token.
    pub fn token(&self, pin: PinUpdate) -> Result<String, CliError> {
        let (path, word) = (self.token_file(), self.secret("token")?);
        let token = Credential::token_of(&word).to_owned();
        let wanted = match pin {
            PinUpdate::Keep => word.clone(),
            PinUpdate::Remove => token.clone(),
            PinUpdate::Certificate(pin) => Credential { token: token.clone(), certificate: Some(pin) }.to_string(),
        };
        if wanted != word {
            self.write_private(&path, format!("{wanted}\n").as_bytes()).map_err(|error| self.unusable(error))?;
        }
        Ok(token)
    }

    /// Returns the key that signs tokens. The first call creates it.
    pub fn token_key(&self) -> Result<TokenKey, CliError> {
        key_of(self.secret("token-key")?.as_bytes(), &self.beside("token-key"))
    }

    /// Returns a secret of this store. The first call creates it.
    fn secret(&self, name: &str) -> Result<String, CliError> {
        let path = self.beside(name);
        match std::fs::read_to_string(&path) {
            Ok(secret) if !secret.trim().is_empty() => return Ok(secret.trim().to_owned()),
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(self.unusable(error)),
            _ => {}
        }
        let secret = random_secret().map_err(|error| CliError::unexpected("could not create a secret", error))?;
        self.write_private(&path, format!("{secret}\n").as_bytes()).map_err(|error| self.unusable(error))?;
        Ok(secret)
    }

    /// Returns the self-signed certificate for these names. The first call creates it; it is kept because clients have pinned it.
    pub fn own_certificate(&self, names: Vec<String>) -> Result<TlsFiles, CliError> {
        let files = TlsFiles { certificate: self.beside("tls.crt"), key: self.beside("tls.key") };
        if !files.certificate.exists() || !files.key.exists() {
            let failed = |error| CliError::unexpected("could not create a certificate", error);
            let (certificate, key) = tls::make_certificate(names).map_err(failed)?;
            self.write_private(&files.key, key.as_bytes()).map_err(|error| self.unusable(error))?;
            self.write_private(&files.certificate, certificate.as_bytes()).map_err(|error| self.unusable(error))?;
        }
        Ok(files)
    }

    /// Returns whether the folder is on a network file system, where locks of other hosts may be invisible.
    pub fn is_on_network(&self) -> bool {
        const NFS: i64 = 0x6969;
        const LUSTRE: i64 = 0x0bd0_0bd0;
        const GPFS: i64 = 0x4750_4653;
        const SMB2: i64 = 0xfe53_4d42;
        const CIFS: i64 = 0xff53_4d42;
        const CEPH: i64 = 0x00c3_6400;
        const BEEGFS: i64 = 0x1983_0326;
        nix::sys::statfs::statfs(&self.folder)
            .is_ok_and(|stat| [NFS, LUSTRE, GPFS, SMB2, CIFS, CEPH, BEEGFS].contains(&stat.filesystem_type().0))
    }

    fn write_private(&self, path: &Path, content: &[u8]) -> std::io::Result<()> {
        // A temporary file is renamed, so that readers never see partial content.
        let mut file = tempfile::Builder::new().prefix(".torc-").tempfile_in(&self.folder)?;
        file.write_all(content)?;
        file.persist(path).map(drop).map_err(|error| error.error)
    }

    fn unusable(&self, error: std::io::Error) -> CliError {
        let kind = match error.kind() {
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => ExitStatus::Refused,
            _ => ExitStatus::Unexpected,
        };
        CliError::new(kind, format!("could not use the store in {}", self.folder.display()))
            .because(error)
            .hint("make the folder writable, run in another folder, or name a server with --url")
    }
}

/// Reads a key for signing tokens.
pub fn read_key(path: &Path) -> Result<TokenKey, CliError> {
    let unreadable = |error| {
        let message = format!("could not read the key {}", path.display());
        CliError::new(ExitStatus::InvalidInput, message).because(error)
    };
    key_of(std::fs::read(path).map_err(unreadable)?.trim_ascii(), path)
}

fn key_of(bytes: &[u8], path: &Path) -> Result<TokenKey, CliError> {
    TokenKey::new(bytes).map_err(|error| CliError::invalid(format!("{}: {error}", path.display())))
}

fn random_secret() -> std::io::Result<String> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_store_of_the_nearest_folder_is_found() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        assert_eq!(StoreDir::find(&inner), None);
        std::fs::create_dir(root.path().join("a/.torc")).unwrap();
        let store_dir = StoreDir::find(&inner).unwrap();
        assert_eq!(store_dir.database, root.path().join("a/.torc/torc.db"));
    }

    #[test]
    fn a_database_is_named_by_path_or_url() {
        let at = |text: &str| StoreDir::of_database(text, Path::new("/here"));
        for (text, database, token) in [
            ("x.db", "/here/x.db", "/here/x.db.token"),
            ("/d/torc.db", "/d/torc.db", "/d/token"),
            ("sqlite:y.db", "/here/y.db", "/here/y.db.token"),
            ("sqlite:///abs/z.db", "/abs/z.db", "/abs/z.db.token"),
        ] {
            let store_dir = at(text).unwrap();
            assert_eq!(
                (store_dir.database.to_str().unwrap(), store_dir.token_file().to_str().unwrap()),
                (database, token)
            );
        }
        for wrong in ["postgres://h/db", "/"] {
            assert_eq!(at(wrong).unwrap_err().kind, ExitStatus::InvalidInput, "{wrong}");
        }
    }

    #[test]
    fn the_token_is_private_and_kept() {
        let root = tempfile::tempdir().unwrap();
        let store_dir = StoreDir::in_folder(root.path().join(".torc"));
        store_dir.create_folder().unwrap();
        let token = store_dir.token(PinUpdate::Keep).unwrap();
        assert_eq!(token.len(), 64);
        assert_eq!(store_dir.token(PinUpdate::Keep).unwrap(), token);
        let read = || std::fs::read_to_string(store_dir.token_file()).unwrap().trim().to_owned();
        assert_eq!(read(), token);
        // The pin stays in the file until there is another certificate.
        let own = PinUpdate::Certificate(Fingerprint([3; 32]));
        let pinned = format!("{token}~{}", Fingerprint([3; 32]));
        for (pin, expected) in
            [(own, &pinned), (PinUpdate::Keep, &pinned), (PinUpdate::Remove, &token), (PinUpdate::Keep, &token)]
        {
            assert_eq!(store_dir.token(pin).unwrap(), token);
            assert_eq!(read(), *expected, "{pin:?}");
        }
        store_dir.token_key().unwrap();
        store_dir.own_certificate(vec!["h".to_owned()]).unwrap();
        for name in ["token", "token-key", "tls.key", "tls.crt"] {
            let mode = std::fs::metadata(store_dir.beside(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }

    #[test]
    fn a_self_signed_certificate_is_kept() {
        let root = tempfile::tempdir().unwrap();
        let store_dir = StoreDir::in_folder(root.path().to_owned());
        let print =
            || tls::fingerprint_of(&store_dir.own_certificate(vec!["h".to_owned()]).unwrap().certificate).unwrap();
        assert_eq!(print(), print());
    }

    #[test]
    fn a_key_has_at_least_32_bytes() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("key");
        assert_eq!(read_key(&path).err().map(|error| error.kind), Some(ExitStatus::InvalidInput));
        std::fs::write(&path, "short\n").unwrap();
        assert_eq!(read_key(&path).err().map(|error| error.kind), Some(ExitStatus::InvalidInput));
        std::fs::write(&path, "x".repeat(32)).unwrap();
        assert!(read_key(&path).is_ok());
    }

    #[test]
    fn a_store_has_one_owner() {
        let root = tempfile::tempdir().unwrap();
        let store_dir = StoreDir::in_folder(root.path().to_owned());
        let lock = store_dir.try_lock().unwrap().unwrap();
        assert!(store_dir.try_lock().unwrap().is_none());
        drop(lock);
        assert!(store_dir.try_lock().unwrap().is_some());
    }

    #[test]
    fn a_recorded_address_is_used_if_this_machine_has_it() {
        let root = tempfile::tempdir().unwrap();
        let store_dir = StoreDir::in_folder(root.path().to_owned());
        assert_eq!(store_dir.last_bind(), None);
        // The port may be in use by then; the owner file contains the port of a dead owner.
        for (bind, expected) in [
            ("127.0.0.1:4711", Some("127.0.0.1:0")),
            ("0.0.0.0:0", Some("0.0.0.0:0")),
            ("192.0.2.1:80", None),
            ("nonsense", None),
        ] {
            store_dir.record_bind(bind);
            assert_eq!(store_dir.last_bind().as_deref(), expected, "{bind}");
        }
    }

    #[test]
    fn the_owner_file_is_written_and_removed() {
        let root = tempfile::tempdir().unwrap();
        let store_dir = StoreDir::in_folder(root.path().to_owned());
        let info = ServerInfo {
            host: "h".to_owned(),
            pid: 1,
            url: "http://127.0.0.1:1".to_owned(),
            token_file: store_dir.token_file(),
            start_time: "2026-01-01T00:00:00Z".to_owned(),
            runner: true,
            local_url: None,
            certificate_sha256: Some(Fingerprint([1; 32])),
            certificate_file: None,
        };
        assert_eq!(store_dir.server_info(), None);
        store_dir.write_server_info(&info).unwrap();
        assert_eq!(store_dir.server_info(), Some(info));
        store_dir.remove_server_info();
        assert_eq!(store_dir.server_info(), None);
    }

    fn info(store_dir: &StoreDir) -> ServerInfo {
        ServerInfo {
            host: host_name(),
            pid: 1,
            url: "https://login1:5/".to_owned(),
            token_file: store_dir.token_file(),
            start_time: "t".to_owned(),
            runner: true,
            local_url: None,
            certificate_sha256: None,
            certificate_file: None,
        }
    }

    #[test]
    fn files_of_a_named_database_have_its_name_as_prefix() {
        let names = |store_dir: &StoreDir| {
            [
                store_dir.token_file(),
                store_dir.log_file(),
                store_dir.runner_folder(),
                store_dir.server_file(),
                store_dir.allocations_folder().unwrap(),
            ]
            .map(|path| path.to_str().unwrap().to_owned())
        };
        let folder = StoreDir::in_folder("/f/.torc".into());
        let expected = ["token", "server.log", "runner", "server.json", "allocations"];
        assert_eq!(names(&folder), expected.map(|name| format!("/f/.torc/{name}")));
        let named = StoreDir::of_database("/d/lab.db", Path::new("/")).unwrap();
        assert_eq!(names(&named), expected.map(|name| format!("/d/lab.db.{name}")));
        assert_eq!((FOLDER, folder.database.to_str().unwrap()), (".torc", "/f/.torc/torc.db"));
    }

    #[test]
    fn the_local_url_is_used_on_the_same_host() {
        let store_dir = StoreDir::in_folder("/f".into());
        let far = ServerInfo {
            host: "another".to_owned(),
            local_url: Some("https://127.0.0.1:5".to_owned()),
            ..info(&store_dir)
        };
        let near = ServerInfo { host: host_name(), ..far.clone() };
        assert_eq!((far.url_from_here(), near.url_from_here()), ("https://login1:5/", "https://127.0.0.1:5"));
        assert_eq!(info(&store_dir).url_from_here(), "https://login1:5/");
    }

    #[test]
    fn an_owner_is_trusted_by_its_pin_or_by_its_file() {
        let root = tempfile::tempdir().unwrap();
        let store_dir = StoreDir::in_folder(root.path().to_owned());
        let file = root.path().join("crt");
        let with = |pin, file: &Path| ServerInfo {
            certificate_sha256: pin,
            certificate_file: Some(file.to_owned()),
            ..info(&store_dir)
        };
        let pin = Fingerprint([4; 32]);
        assert_eq!(info(&store_dir).trust(), Trust::System);
        assert_eq!(with(None, &file).trust(), Trust::System, "a file on another machine");
        std::fs::write(&file, "x").unwrap();
        assert_eq!(with(None, &file).trust(), Trust::SameAs(file.clone()));
        assert_eq!(with(Some(pin), &file).trust(), Trust::Certificate(pin));
    }

    #[test]
    fn a_new_owner_uses_the_port_of_the_last_one() {
        let root = tempfile::tempdir().unwrap();
        let store_dir = StoreDir::in_folder(root.path().to_owned());
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        assert_eq!(store_dir.same_port(any), any);
        let free = std::net::TcpListener::bind(any).unwrap().local_addr().unwrap().port();
        let at = |host: &str, port: u16| ServerInfo {
            host: host.to_owned(),
            url: format!("http://127.0.0.1:{port}/"),
            ..info(&store_dir)
        };
        store_dir.write_server_info(&at(&host_name(), free)).unwrap();
        assert_eq!(store_dir.same_port(any).port(), free);
        let said: SocketAddr = "127.0.0.1:9".parse().unwrap();
        assert_eq!(store_dir.same_port(said), said, "a configured port is kept");
        let taken = std::net::TcpListener::bind(any).unwrap();
        store_dir.write_server_info(&at(&host_name(), taken.local_addr().unwrap().port())).unwrap();
        assert_eq!(store_dir.same_port(any), any, "the port is in use");
        store_dir.write_server_info(&at("another", free)).unwrap();
        assert_eq!(store_dir.same_port(any), any, "the owner was on another host");
    }

    #[test]
    fn a_folder_without_write_permission_is_refused() {
        let store_dir = StoreDir::in_folder("/f".into());
        for (kind, code) in [
            (std::io::ErrorKind::PermissionDenied, 7),
            (std::io::ErrorKind::ReadOnlyFilesystem, 7),
            (std::io::ErrorKind::NotFound, 1),
            (std::io::ErrorKind::StorageFull, 1),
        ] {
            assert_eq!(store_dir.unusable(kind.into()).kind.code(), code, "{kind:?}");
        }
    }

    #[test]
    fn an_empty_secret_is_replaced() {
        let root = tempfile::tempdir().unwrap();
        let store_dir = StoreDir::in_folder(root.path().join(".torc"));
        store_dir.create_folder().unwrap();
        assert_eq!(std::fs::metadata(&store_dir.folder).unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::write(store_dir.token_file(), "\n").unwrap();
        assert_eq!(store_dir.token(PinUpdate::Keep).unwrap().len(), 64);
        let inner = root.path().join("a/b");
        std::fs::create_dir_all(inner.join(".torc")).unwrap();
        assert_eq!(StoreDir::find(&inner).unwrap().folder, inner.join(".torc"));
        assert_eq!(StoreDir::find(&root.path().join("a")).unwrap().folder, store_dir.folder);
    }
}
