//! Loops of jobs that make jobs: the names under which their states are kept as user data.

/// The prefix of the names of all loop states.
pub const PREFIX: &str = "__torc_lineage__";
const FINAL: &str = "__final";

/// Returns the name of the user data that holds the state of a generation; the first is 1.
pub fn generation_name(lineage: &str, generation: i64) -> String {
    format!("{PREFIX}{lineage}__g{generation:06}")
}

/// Returns the name of the user data that holds the final state of a loop.
pub fn final_name(lineage: &str) -> String {
    format!("{PREFIX}{lineage}{FINAL}")
}

/// A state of a loop, with the loop's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopState<'a> {
    /// The state of one generation, by number.
    Generation(&'a str, i64),
    /// The state after the last generation.
    Final(&'a str),
}

/// Returns the loop state that a name of user data denotes, if any.
pub fn parse(name: &str) -> Option<LoopState<'_>> {
    let rest = name.strip_prefix(PREFIX)?;
    if let Some(lineage) = rest.strip_suffix(FINAL) {
        return Some(LoopState::Final(lineage));
    }
    let (lineage, number) = rest.rsplit_once("__g")?;
    let digits = number.len() >= 6 && number.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| number.parse().ok().map(|number| LoopState::Generation(lineage, number))).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        assert_eq!(generation_name("tune", 7), "__torc_lineage__tune__g000007");
        assert_eq!(final_name("tune"), "__torc_lineage__tune__final");
        for lineage in ["tune", "a__g000001", "x__final", ""] {
            assert_eq!(parse(&generation_name(lineage, 1_234_567)), Some(LoopState::Generation(lineage, 1_234_567)));
            assert_eq!(parse(&final_name(lineage)), Some(LoopState::Final(lineage)));
        }
        for other in ["tune", "__torc_lineage__tune", "__torc_lineage__tune__g12", "__torc_lineage__tune__g00000x"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
