//! `torc token`: create and show tokens with limited rights.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use torc_api::token::{Claims, Credential, Grant, Scope, TokenRequest};
use torc_core::tokens;

use crate::client::Client;
use crate::connection::{bare_name, explain_missing, with_client};
use crate::context::CommandContext;
use crate::embedded::store_dir::StoreDir;
use crate::error::{CliError, ExitStatus};
use crate::output::without_nulls;
use crate::token_file::read_token;

/// Create and show tokens with limited rights
#[derive(Debug, Args)]
pub struct TokenArgs {
    #[command(subcommand)]
    pub command: TokenCommand,
}

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    Create(CreateTokenArgs),
    Show(ShowTokenArgs),
}

/// Create a token and print it
///
/// The token grants only its scope. Store it in a file that only its user can read. The server keeps no list of tokens; a new key
/// (the file `token-key` next to the database) revokes all of them.
#[derive(Debug, Args)]
pub struct CreateTokenArgs {
    /// Rights of the token
    #[arg(long, value_enum)]
    pub scope: ScopeArg,
    /// Workflow of a runner token, by name or number
    #[arg(long, required_if_eq("scope", "runner"))]
    pub workflow: Option<String>,
    /// User of an owner token
    #[arg(long, required_if_eq("scope", "owner"))]
    pub user: Option<String>,
    /// Lifetime, e.g. `24h` (default: unlimited)
    #[arg(long, value_name = "TIME", value_parser = crate::args::parse_duration)]
    pub expires: Option<Duration>,
}

/// The rights of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ScopeArg {
    /// All rights
    Admin,
    /// The workflows of a user
    Owner,
    /// Read the workflows of the namespace (`--namespace`)
    Viewer,
    /// Change the workflows of the namespace, but create none
    Editor,
    /// Runners and jobs of one workflow
    Runner,
    /// Runners and jobs of all workflows
    Pool,
    /// Read metrics
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

/// Show the rights of a token without printing it
#[derive(Debug, Args)]
pub struct ShowTokenArgs {
    /// File with the token (default: --token-file, TORC_TOKEN_FILE or the store of this folder)
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
}

pub async fn run(context: &CommandContext, args: &TokenArgs) -> Result<ExitStatus, CliError> {
    match &args.command {
        TokenCommand::Create(args) => create(context, args).await,
        TokenCommand::Show(args) => show(context, args),
    }
}

async fn create(context: &CommandContext, args: &CreateTokenArgs) -> Result<ExitStatus, CliError> {
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

fn show(context: &CommandContext, args: &ShowTokenArgs) -> Result<ExitStatus, CliError> {
    let named = args.file.clone().or_else(|| context.settings.token_file.clone());
    let word = match (named, &context.settings.token) {
        (Some(path), None) => read_token(&path)?,
        (Some(path), Some(_)) if args.file.is_some() => read_token(&path)?,
        (_, Some(token)) => token.clone(),
        (None, None) => {
            let store_dir = StoreDir::find(&context.folder).ok_or_else(|| CliError::usage("missing token file"))?;
            read_token(&store_dir.token_file())?
        }
    };
    let wrong = |what: &str| CliError::invalid(format!("invalid token: {what}"));
    let credential = Credential::parse(&word).map_err(|error| wrong(&format!("the pinned certificate {error}")))?;
    let claims = if tokens::is_signed(&credential.token) {
        Some(tokens::read(&credential.token).map_err(|error| wrong(&error.to_string()))?)
    } else {
        None
    };
    let certificate = credential.certificate.map(|pin| pin.to_string());
    let value = match &claims {
        Some(claims) => json!({ "statement": claims, "certificateSha256": certificate }),
        None => json!({ "statement": { "scope": "admin" }, "certificateSha256": certificate }),
    };
    context.output.value(&without_nulls(value), || lines(claims.as_ref(), certificate.as_deref()))?;
    Ok(ExitStatus::Success)
}

fn lines(claims: Option<&Claims>, certificate: Option<&str>) -> String {
    let time =
        |seconds: i64| jiff::Timestamp::from_second(seconds).map_or_else(|_| "?".to_owned(), |at| at.to_string());
    let allows = match claims.map(|claims| &claims.grant) {
        None | Some(Grant::Admin) => "everything (admin)".to_owned(),
        Some(Grant::Owner { user }) => format!("the workflows of {user} (owner)"),
        Some(Grant::Viewer { namespace }) => format!("reading the workflows of the namespace {namespace} (viewer)"),
        Some(Grant::Editor { namespace }) => format!("the workflows of the namespace {namespace} (editor)"),
        Some(Grant::Runner { workflow }) => format!("runners and jobs of workflow {workflow} (runner)"),
        Some(Grant::Pool) => "the runners and jobs of every workflow (pool)".to_owned(),
        Some(Grant::Metrics) => "reading metrics (metrics)".to_owned(),
    };
    let mut text = format!("allows:      {allows}\n");
    if let Some(claims) = claims {
        let expires = claims.expires.map_or_else(|| "never".to_owned(), time);
        let made = if claims.issued == 0 { String::new() } else { format!(", {}", time(claims.issued)) };
        text.push_str(&format!("made by:     {}{made}\nexpires:     {expires}\n", claims.issuer));
    }
    text.push_str(&format!("certificate: {}\n", certificate.unwrap_or("any trusted certificate")));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_described_without_being_printed() {
        let claims =
            Claims { grant: Grant::Runner { workflow: 3 }, issuer: "ada".to_owned(), issued: 0, expires: Some(86_400) };
        let text = lines(Some(&claims), None);
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
            let claims = Claims { grant, issuer: "ada".to_owned(), issued: 60, expires: None };
            lines(Some(&claims), None)
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
                "made by:     ada, 1970-01-01T00:01:00Z\nexpires:     never\ncertificate: any trusted certificate\n";
            assert_eq!(sentence(grant), format!("allows:      {expected}\n{end}"));
        }
        assert_eq!(
            without_nulls(json!({ "a": null, "b": 1, "c": { "d": null } })),
            json!({ "b": 1, "c": { "d": null } })
        );
    }
}
