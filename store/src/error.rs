//! Errors of a store, as far as a caller can act on them.

use std::path::{Path, PathBuf};

use thiserror::Error;

/// The reason why an operation of a store failed.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The file does not exist and should not be created.
    #[error("there is no database at {}", path.display())]
    NotFound { path: PathBuf },
    /// Another process has locked the store.
    #[error("the database {} is in use by another process", path.display())]
    Locked { path: PathBuf },
    /// The file is read-only.
    #[error("the database {} is read-only", path.display())]
    ReadOnly { path: PathBuf },
    /// The disk is full.
    #[error("no space is left for the database {}", path.display())]
    DiskFull { path: PathBuf },
    /// A newer version of Torc has written the file.
    #[error("the database {} has schema {found}, this version of Torc knows {known}", path.display())]
    NewerSchema {
        path: PathBuf,
        /// The schema of the file.
        found: i64,
        /// The newest known schema.
        known: i64,
    },
    /// A version of Torc from before the first release has written the file.
    #[error("the database {} has schema {found}, this version of Torc reads {oldest} and later", path.display())]
    OlderSchema {
        path: PathBuf,
        /// The schema of the file.
        found: i64,
        /// The oldest supported schema.
        oldest: i64,
    },
    /// The file is not a Torc database.
    #[error("{} is not a Torc database", path.display())]
    NotADatabase { path: PathBuf },
    /// The content is damaged.
    #[error("the database {} is damaged: {what}", path.display())]
    Corrupt { path: PathBuf, what: String },
    /// A file exists that must not be overwritten.
    #[error("{} exists already", path.display())]
    Exists { path: PathBuf },
    /// A cursor that is not from a page of this list.
    #[error("'{cursor}' is not a cursor of this list")]
    InvalidCursor { cursor: String },
    /// The store was closed.
    #[error("the database {} has been closed", path.display())]
    Closed { path: PathBuf },
    /// Another server has become the leader of this database.
    #[error("another server leads: its epoch is {by}, ours is {epoch}")]
    Superseded {
        /// Epoch that this server has.
        epoch: i64,
        /// Epoch of the current leader.
        by: i64,
    },
    /// Rows violate a constraint of the schema.
    #[error("the changes break a rule of the database {}", path.display())]
    Constraint {
        path: PathBuf,
        #[source]
        source: sqlx::Error,
    },
    /// The file system failed.
    #[error("could not {operation} {}", path.display())]
    Io {
        /// The operation that failed.
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The operating system failed below the database.
    #[error("reading or writing the database {} failed", path.display())]
    DatabaseIo {
        path: PathBuf,
        #[source]
        source: sqlx::Error,
    },
    /// Another error of the database.
    #[error("the database {} failed", path.display())]
    Database {
        path: PathBuf,
        #[source]
        source: sqlx::Error,
    },
}

/// SQLite's primary result codes: the low byte of an error code.
mod code {
    pub const BUSY: i32 = 5;
    pub const LOCKED: i32 = 6;
    pub const READONLY: i32 = 8;
    pub const IOERR: i32 = 10;
    /// The only extended code that is distinguished.
    pub const IOERR_SHMSIZE: i32 = IOERR | (19 << 8);
    pub const CORRUPT: i32 = 11;
    pub const FULL: i32 = 13;
    pub const CANTOPEN: i32 = 14;
    pub const CONSTRAINT: i32 = 19;
    pub const NOTADB: i32 = 26;
}

impl StoreError {
    /// Maps an error of the driver by SQLite's result code.
    pub(crate) fn from_sqlx(path: &Path, source: sqlx::Error) -> Self {
        let path = path.to_owned();
        if extended_code(&source) == Some(code::IOERR_SHMSIZE) {
            // There is no space for the file that readers share, which is created when a database is opened.
            return Self::DiskFull { path };
        }
        match extended_code(&source).map(primary) {
            Some(code::BUSY | code::LOCKED) => Self::Locked { path },
            Some(code::READONLY) => Self::ReadOnly { path },
            Some(code::FULL) => Self::DiskFull { path },
            Some(code::NOTADB) => Self::NotADatabase { path },
            Some(code::CORRUPT) => Self::Corrupt { path, what: source.to_string() },
            Some(code::CONSTRAINT) => Self::Constraint { path, source },
            Some(code::IOERR | code::CANTOPEN) => Self::DatabaseIo { path, source },
            _ => Self::Database { path, source },
        }
    }

    /// Maps an error of the file system.
    pub(crate) fn from_io(operation: &'static str, path: &Path, source: std::io::Error) -> Self {
        use std::io::ErrorKind;
        let path = path.to_owned();
        match source.kind() {
            ErrorKind::NotFound => Self::NotFound { path },
            ErrorKind::AlreadyExists => Self::Exists { path },
            ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { path },
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::DiskFull { path },
            _ => Self::Io { operation, path, source },
        }
    }
}

fn extended_code(error: &sqlx::Error) -> Option<i32> {
    error.as_database_error()?.code()?.parse().ok()
}

const fn primary(extended: i32) -> i32 {
    extended & 0xff
}

/// An error inside this crate, before the path of the database is added.
#[derive(Debug)]
pub(crate) enum QueryError {
    Driver(sqlx::Error),
    /// A row with impossible content.
    Damage(String),
    /// A cursor that is not from a page of this list.
    Cursor(String),
    /// The store was closed.
    Closed,
    /// Another server leads with the epoch `by`.
    Superseded {
        epoch: i64,
        by: i64,
    },
}

impl From<sqlx::Error> for QueryError {
    fn from(error: sqlx::Error) -> Self {
        Self::Driver(error)
    }
}

impl QueryError {
    /// Adds the path of the database.
    pub(crate) fn at(self, path: &Path) -> StoreError {
        match self {
            Self::Driver(source) => StoreError::from_sqlx(path, source),
            Self::Damage(what) => StoreError::Corrupt { path: path.to_owned(), what },
            Self::Cursor(cursor) => StoreError::InvalidCursor { cursor },
            Self::Closed => StoreError::Closed { path: path.to_owned() },
            Self::Superseded { epoch, by } => StoreError::Superseded { epoch, by },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    /// An error of SQLite that only has a code.
    #[derive(Debug, thiserror::Error)]
    #[error("code {0}")]
    struct CodeOnlyError(i32);

    impl sqlx::error::DatabaseError for CodeOnlyError {
        fn message(&self) -> &str {
            "coded"
        }

        fn code(&self) -> Option<Cow<'_, str>> {
            Some(self.0.to_string().into())
        }

        fn as_error(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
            self
        }

        fn as_error_mut(&mut self) -> &mut (dyn std::error::Error + Send + Sync + 'static) {
            self
        }

        fn into_error(self: Box<Self>) -> Box<dyn std::error::Error + Send + Sync + 'static> {
            self
        }

        fn kind(&self) -> sqlx::error::ErrorKind {
            sqlx::error::ErrorKind::Other
        }
    }

    /// Returns the name of the variant.
    fn kind(error: &StoreError) -> String {
        let text = format!("{error:?}");
        text.split([' ', '{']).next().unwrap_or_default().to_owned()
    }

    #[test]
    fn codes_are_told_apart() {
        let path = Path::new("/s/torc.db");
        let of = |code: i32| StoreError::from_sqlx(path, sqlx::Error::Database(Box::new(CodeOnlyError(code))));
        for (name, code, expected) in [
            ("SQLITE_ERROR", 1, "Database"),
            ("SQLITE_BUSY", 5, "Locked"),
            ("SQLITE_BUSY_SNAPSHOT", 517, "Locked"),
            ("SQLITE_LOCKED", 6, "Locked"),
            ("SQLITE_READONLY", 8, "ReadOnly"),
            ("SQLITE_READONLY_DBMOVED", 1_032, "ReadOnly"),
            ("SQLITE_IOERR", 10, "DatabaseIo"),
            ("SQLITE_IOERR_SHMOPEN", 4_618, "DatabaseIo"),
            // There is no space for the file that readers share.
            ("SQLITE_IOERR_SHMSIZE", 4_874, "DiskFull"),
            ("SQLITE_CORRUPT", 11, "Corrupt"),
            ("SQLITE_FULL", 13, "DiskFull"),
            ("SQLITE_CANTOPEN", 14, "DatabaseIo"),
            ("SQLITE_CONSTRAINT", 19, "Constraint"),
            ("SQLITE_CONSTRAINT_UNIQUE", 2_067, "Constraint"),
            ("SQLITE_NOTADB", 26, "NotADatabase"),
        ] {
            assert_eq!(kind(&of(code)), expected, "{name}");
        }
        assert_eq!(kind(&StoreError::from_sqlx(path, sqlx::Error::PoolClosed)), "Database");
    }

    #[test]
    fn errors_of_the_file_system_are_told_apart() {
        use std::io::ErrorKind;
        for (found, expected) in [
            (ErrorKind::NotFound, "NotFound"),
            (ErrorKind::AlreadyExists, "Exists"),
            (ErrorKind::ReadOnlyFilesystem, "ReadOnly"),
            (ErrorKind::StorageFull, "DiskFull"),
            (ErrorKind::QuotaExceeded, "DiskFull"),
            (ErrorKind::PermissionDenied, "Io"),
            (ErrorKind::Interrupted, "Io"),
        ] {
            let error = StoreError::from_io("create", Path::new("/s/torc.db"), found.into());
            assert_eq!(kind(&error), expected, "{found:?}");
        }
    }

    #[test]
    fn errors_name_what_they_are_about() {
        let path = || PathBuf::from("/s/torc.db");
        let source = || sqlx::Error::PoolClosed;
        let io = || std::io::ErrorKind::Interrupted.into();
        for (error, expected) in [
            (StoreError::NotFound { path: path() }, "there is no database at /s/torc.db"),
            (StoreError::Locked { path: path() }, "the database /s/torc.db is in use by another process"),
            (StoreError::ReadOnly { path: path() }, "the database /s/torc.db is read-only"),
            (StoreError::DiskFull { path: path() }, "no space is left for the database /s/torc.db"),
            (
                StoreError::NewerSchema { path: path(), found: 9, known: 4 },
                "the database /s/torc.db has schema 9, this version of Torc knows 4",
            ),
            (
                StoreError::OlderSchema { path: path(), found: 3, oldest: 15 },
                "the database /s/torc.db has schema 3, this version of Torc reads 15 and later",
            ),
            (StoreError::NotADatabase { path: path() }, "/s/torc.db is not a Torc database"),
            (QueryError::Damage("a row".to_owned()).at(&path()), "the database /s/torc.db is damaged: a row"),
            (StoreError::Exists { path: path() }, "/s/torc.db exists already"),
            (QueryError::Cursor("1.x".to_owned()).at(&path()), "'1.x' is not a cursor of this list"),
            (QueryError::Closed.at(&path()), "the database /s/torc.db has been closed"),
            (QueryError::Superseded { epoch: 3, by: 5 }.at(&path()), "another server leads: its epoch is 5, ours is 3"),
            (
                StoreError::Constraint { path: path(), source: source() },
                "the changes break a rule of the database /s/torc.db",
            ),
            (StoreError::Io { operation: "sync", path: path(), source: io() }, "could not sync /s/torc.db"),
            (
                StoreError::DatabaseIo { path: path(), source: source() },
                "reading or writing the database /s/torc.db failed",
            ),
            (QueryError::Driver(source()).at(&path()), "the database /s/torc.db failed"),
        ] {
            assert_eq!(error.to_string(), expected);
        }
    }
}
