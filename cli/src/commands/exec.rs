//! `torc exec`: run commands from the command line as a workflow.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::run;
use crate::context::CommandContext;
use crate::documents;
use crate::error::{CliError, ExitStatus};
use crate::output::document_text;
use crate::settings::RunnerArgs;
use crate::use_cases::run::Target;
use crate::use_cases::summary::quoted;
use output_args::OutputArgs;

mod output_args;

/// Run commands as a workflow on this machine
///
/// Each command becomes a job. With --param each command becomes one job for each value, which replaces `{NAME}` in the command.
/// Exits like `torc apply`. Without --name the workflow gets a unique name; with the name of an existing workflow, that one
/// continues. Here -n is short for --name and -o for --output-dir; --namespace and --output have no short form.
#[derive(Debug, Args)]
pub struct ExecArgs {
    /// Name of the workflow (-n) (default: a unique name)
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Shell command; may be repeated
    #[arg(short = 'c', long = "command", value_name = "CMD", num_args = 1..)]
    pub commands: Vec<String>,
    /// File with one command per line, or `-` for standard input; empty lines and lines that start with # are ignored
    #[arg(short = 'C', long = "commands-file", value_name = "FILE")]
    pub commands_file: Option<PathBuf>,
    /// Parameter and its values, e.g. `i=1:10`, `lr=0.1,0.01` or `name=[a,b]`; may be repeated
    #[arg(long = "param", value_name = "NAME=VALUES", value_parser = parse_parameter)]
    pub parameters: Vec<(String, String)>,
    /// Combination of several parameters
    #[arg(long, value_enum, value_name = "HOW", default_value = "product")]
    pub link: ParameterLink,
    /// Print the document for `torc apply -f` without running it
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten, next_help_heading = "Recorded output")]
    pub output: OutputArgs,
    #[command(flatten)]
    pub runner: RunnerArgs,
    /// One command with its arguments, not interpreted by a shell
    #[arg(last = true, value_name = "COMMAND")]
    pub words: Vec<String>,
}

/// The combination of several parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ParameterLink {
    /// Every value of one parameter with every value of the others
    Product,
    /// The first values of all parameters, then the second values, and so on
    Zip,
}

impl ParameterLink {
    const fn mode(self) -> &'static str {
        match self {
            Self::Product => "product",
            Self::Zip => "zip",
        }
    }
}

fn parse_parameter(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, values)) if !name.is_empty() && !values.is_empty() => Ok((name.to_owned(), values.to_owned())),
        _ => Err("must be NAME=VALUES, e.g. i=1:10".to_owned()),
    }
}

pub async fn run(context: &CommandContext, args: &ExecArgs) -> Result<ExitStatus, CliError> {
    let commands = commands(args)?;
    let name = args.name.clone().unwrap_or_else(|| unique_name(jiff::Zoned::now().datetime()));
    let mut document = document(&name, &commands, &args.parameters, args.link);
    if let Some(keys) = document.as_object_mut() {
        keys.extend(args.output.keys());
    }
    if args.dry_run {
        context.output.document(&document)?;
        return Ok(ExitStatus::Success);
    }
    let text = document_text(&document);
    let made = documents::load_generated(&text, "<exec>", context.settings.namespace.as_deref(), context.output)?;
    run::run_target(context, Target::Documents(made.into())).await
}

fn unique_name(now: jiff::civil::DateTime) -> String {
    format!("exec-{}-{}", now.strftime("%Y%m%d-%H%M%S"), std::process::id())
}

/// Returns the commands in this order: from `-c`, from the file, after `--`.
fn commands(args: &ExecArgs) -> Result<Vec<String>, CliError> {
    let mut commands = args.commands.clone();
    if let Some(path) = &args.commands_file {
        let bytes = documents::read_text(path)?;
        let text =
            String::from_utf8(bytes).map_err(|_| CliError::invalid(format!("{} is not UTF-8 text", path.display())))?;
        commands.extend(text.lines().map(str::trim).filter(|line| is_command(line)).map(str::to_owned));
    }
    if !args.words.is_empty() {
        commands.push(args.words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "));
    }
    if commands.is_empty() {
        return Err(CliError::usage("missing command").hint("use `torc exec -c 'COMMAND'` or `torc exec -- COMMAND`"));
    }
    Ok(commands)
}

fn is_command(line: &str) -> bool {
    !line.is_empty() && !line.starts_with('#')
}

/// Returns a Torc 1.0 specification with a job for each command.
fn document(name: &str, commands: &[String], parameters: &[(String, String)], link: ParameterLink) -> Value {
    let rows: String = parameters.iter().map(|(name, _)| format!("_{{{name}}}")).collect();
    let values: Map<String, Value> = parameters.iter().map(|(name, text)| (name.clone(), values(text))).collect();
    let width = commands.len().to_string().len();
    let jobs: Vec<Value> = (1..)
        .zip(commands)
        .map(|(number, command)| {
            let mut job = json!({ "name": format!("job{number:0width$}{rows}"), "command": command });
            if !values.is_empty() {
                job["parameters"] = json!(values);
                job["parameter_mode"] = json!(link.mode());
            }
            job
        })
        .collect();
    json!({ "name": name, "jobs": jobs })
}

/// Returns a list for `a,b`. A document interprets all other text.
fn values(text: &str) -> Value {
    if text.contains(',') && !text.starts_with('[') {
        return text.split(',').map(|value| json!(value.trim())).collect();
    }
    json!(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_a_job_and_each_parameter_is_in_its_name() {
        let commands: Vec<String> = (1..=10).map(|n| format!("echo {n}")).collect();
        let plain = document("w", &commands, &[], ParameterLink::Product);
        assert_eq!(plain["jobs"][0], json!({ "name": "job01", "command": "echo 1" }));
        assert_eq!(plain["jobs"][9]["name"], "job10");
        let parameters = [("a".to_owned(), "1:3".to_owned()), ("b".to_owned(), "x, y".to_owned())];
        let job = &document("w", &commands[..1], &parameters, ParameterLink::Zip)["jobs"][0];
        assert_eq!(job["name"], "job1_{a}_{b}");
        assert_eq!(job["parameters"], json!({ "a": "1:3", "b": ["x", "y"] }));
        assert_eq!(job["parameter_mode"], "zip");
        assert_eq!(values("[a,b]"), "[a,b]");
    }

    #[test]
    fn parameters_have_a_name_and_values() {
        assert_eq!(parse_parameter("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        for wrong in ["a", "=b", "a="] {
            assert!(parse_parameter(wrong).is_err(), "{wrong}");
        }
        assert!(is_command("echo") && !is_command("# no") && !is_command(""));
    }

    #[test]
    fn commands_come_from_flags_then_the_file_then_the_words() {
        use clap::Parser as _;
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("list");
        std::fs::write(&file, "# no\n\n  from file  \n").expect("a file");
        let line =
            ["torc", "exec", "-c", "first", "-C", file.to_str().expect("UTF-8"), "--", "echo", "two words", "it's"];
        let cli = crate::cli::Cli::try_parse_from(line).expect("a command line");
        let crate::cli::Command::Exec(args) = cli.command else { panic!("an exec") };
        assert_eq!(commands(&args).expect("commands"), ["first", "from file", r"echo 'two words' 'it'\''s'"]);
        assert_eq!(ParameterLink::Product.mode(), "product");
        let name = unique_name(jiff::civil::date(2026, 1, 2).at(3, 4, 5, 0));
        assert_eq!(name, format!("exec-20260102-030405-{}", std::process::id()));
        assert_eq!((values("a, b"), values("1:3"), values("[a,b]")), (json!(["a", "b"]), json!("1:3"), json!("[a,b]")));
    }
}
