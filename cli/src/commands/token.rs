//! `torc token`: tokens that allow less than everything.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use torc_api::token::{Claims, Credential, Grant, Scope, TokenRequest};
use torc_core::trust;

use crate::client::Client;
use crate::connection::{bare_name, explain_missing, with_client};
use crate::context::CommandContext;
use crate::embedded::store_dir::StoreDir;
use crate::error::{CliError, ExitStatus};
use crate::output::without_nulls;
use crate::token_file::read_token;

/// Make and look at tokens that allow less than the server's own.
#[derive(Debug, Args)]
pub struct TokenArgs {
    #[command(subcommand)]
    pub command: TokenCommand,
}

/// What to do with tokens.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    Create(CreateArgs),
    Show(ShowArgs),
}

/// Print a new token.
///
/// It allows what its scope says and nothing else. Keep it in a file that only its user can read: whoever has it can use it. The
/// server keeps no list of tokens; another key (the file `token-key` beside the database) ends all of them.
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// What it is for.
    #[arg(long, value_enum)]
    pub scope: ScopeArg,
    /// The workflow of a runner's token, by name or number.
    #[arg(long, required_if_eq("scope", "runner"))]
    pub workflow: Option<String>,
    /// The user of an owner's token.
    #[arg(long, required_if_eq("scope", "owner"))]
    pub user: Option<String>,
    /// How long it is good for, e.g. `24h` (for ever when absent).
    #[arg(long, value_name = "TIME", value_parser = crate::args::parse_duration)]
    pub expires: Option<Duration>,
}

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ScopeArg {
    /// Everything.
    Admin,
    /// A user's workflows.
    Owner,
    /// Reading the workflows of the namespace (`--namespace`).
    Viewer,
    /// The workflows of the namespace, except making new ones.
    Editor,
    /// The runners and jobs of one workflow.
    Runner,
    /// The runners and jobs of every workflow.
    Pool,
    /// Reading metrics.
    Metrics,
}

impl ScopeArg {
    const fn scope(self) -> Scope {
        match self {
            Self::Admin => Scope::Admin,
            Self::Owner => Scope::Owner,
            Self::Viewer => Scope::Viewer,
            Self::Editor => Scope::Editor,
            Self::Runner => Scope::Runner,
            Self::Pool => Scope::Pool,
            Self::Metrics => Scope::Metrics,
        }
    }
}

/// Say what a token is for, without printing it.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The file with the token; that of --token-file, TORC_TOKEN_FILE or the store here when absent.
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// Runs the verb.
pub async fn run(context: &CommandContext, args: &TokenArgs) -> Result<ExitStatus, CliError> {
    match &args.command {
        TokenCommand::Create(args) => create(context, args).await,
        TokenCommand::Show(args) => show(context, args),
    }
}

async fn create(context: &CommandContext, args: &CreateArgs) -> Result<ExitStatus, CliError> {
    let request = TokenRequest {
        scope: args.scope.scope(),
        workflow: args.workflow.as_deref().map(|name| bare_name(name).to_owned()),
        namespace: context.settings.namespace.clone(),
        user: args.user.clone(),
        expires_seconds: args.expires.map(|time| i64::try_from(time.as_secs()).unwrap_or(i64::MAX)),
    };
    let made = with_client(&context.settings, &context.folder, async |client: &Client| {
        client.create_token(&request).await.map_err(explain_missing)
    })
    .await?;
    context.output.value(&made, || format!("{}\n", made.token))?;
    Ok(ExitStatus::Success)
}

fn show(context: &CommandContext, args: &ShowArgs) -> Result<ExitStatus, CliError> {
    let named = args.file.clone().or_else(|| context.settings.token_file.clone());
    let word = match (named, &context.settings.token) {
        (Some(path), None) => read_token(&path)?,
        (Some(path), Some(_)) if args.file.is_some() => read_token(&path)?,
        (_, Some(token)) => token.clone(),
        (None, None) => {
            let store_dir =
                StoreDir::find(&context.folder).ok_or_else(|| CliError::usage("name the file of a token"))?;
            read_token(&store_dir.token_file())?
        }
    };
    let wrong = |what: &str| CliError::invalid(format!("this is no token: {what}"));
    let credential = Credential::parse(&word).map_err(|error| wrong(&format!("what it pins {error}")))?;
    let statement = if trust::is_signed(&credential.token) {
        Some(trust::read(&credential.token).map_err(|error| wrong(&error.to_string()))?)
    } else {
        None
    };
    let certificate = credential.certificate.map(|pin| pin.to_string());
    let value = match &statement {
        Some(statement) => json!({ "statement": statement, "certificateSha256": certificate }),
        None => json!({ "statement": { "scope": "admin" }, "certificateSha256": certificate }),
    };
    context.output.value(&without_nulls(value), || lines(statement.as_ref(), certificate.as_deref()))?;
    Ok(ExitStatus::Success)
}

fn lines(statement: Option<&Claims>, certificate: Option<&str>) -> String {
    let time =
        |seconds: i64| jiff::Timestamp::from_second(seconds).map_or_else(|_| "?".to_owned(), |at| at.to_string());
    let allows = match statement.map(|statement| &statement.grant) {
        None | Some(Grant::Admin) => "everything (admin)".to_owned(),
        Some(Grant::Owner { user }) => format!("the workflows of {user} (owner)"),
        Some(Grant::Viewer { namespace }) => format!("reading the workflows of the namespace {namespace} (viewer)"),
        Some(Grant::Editor { namespace }) => format!("the workflows of the namespace {namespace} (editor)"),
        Some(Grant::Runner { workflow }) => format!("runners and jobs of workflow {workflow} (runner)"),
        Some(Grant::Pool) => "the runners and jobs of every workflow (pool)".to_owned(),
        Some(Grant::Metrics) => "reading metrics (metrics)".to_owned(),
    };
    let mut text = format!("allows:      {allows}\n");
    if let Some(statement) = statement {
        let expires = statement.expires.map_or_else(|| "never".to_owned(), time);
        let made = if statement.issued == 0 { String::new() } else { format!(", {}", time(statement.issued)) };
        text.push_str(&format!("made by:     {}{made}\nexpires:     {expires}\n", statement.issuer));
    }
    text.push_str(&format!("certificate: {}\n", certificate.unwrap_or("any that is trusted here")));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_described_without_being_printed() {
        let statement =
            Claims { grant: Grant::Runner { workflow: 3 }, issuer: "ada".to_owned(), issued: 0, expires: Some(86_400) };
        let text = lines(Some(&statement), None);
        assert!(text.contains("workflow 3 (runner)") && text.contains("1970-01-02T00:00:00Z"), "{text}");
        assert!(lines(None, Some("ab")).contains("everything (admin)\ncertificate: ab"));
    }

    #[test]
    fn every_scope_has_its_word_and_its_sentence() {
        use clap::ValueEnum as _;
        let scopes = [
            ("admin", Scope::Admin),
            ("owner", Scope::Owner),
            ("viewer", Scope::Viewer),
            ("editor", Scope::Editor),
            ("runner", Scope::Runner),
            ("pool", Scope::Pool),
            ("metrics", Scope::Metrics),
        ];
        for (word, scope) in scopes {
            assert_eq!(ScopeArg::from_str(word, false).map(ScopeArg::scope), Ok(scope), "{word}");
        }
        assert_eq!(ScopeArg::value_variants().len(), scopes.len());
        let sentence = |grant: Grant| {
            let statement = Claims { grant, issuer: "ada".to_owned(), issued: 60, expires: None };
            lines(Some(&statement), None)
        };
        let text = |name: &str| name.to_owned();
        for (grant, expected) in [
            (Grant::Admin, "everything (admin)"),
            (Grant::Owner { user: text("u") }, "the workflows of u (owner)"),
            (Grant::Viewer { namespace: text("n") }, "reading the workflows of the namespace n (viewer)"),
            (Grant::Editor { namespace: text("n") }, "the workflows of the namespace n (editor)"),
            (Grant::Runner { workflow: 3 }, "runners and jobs of workflow 3 (runner)"),
            (Grant::Pool, "the runners and jobs of every workflow (pool)"),
            (Grant::Metrics, "reading metrics (metrics)"),
        ] {
            let end =
                "made by:     ada, 1970-01-01T00:01:00Z\nexpires:     never\ncertificate: any that is trusted here\n";
            assert_eq!(sentence(grant), format!("allows:      {expected}\n{end}"));
        }
        assert_eq!(
            without_nulls(json!({ "a": null, "b": 1, "c": { "d": null } })),
            json!({ "b": 1, "c": { "d": null } })
        );
    }
}
