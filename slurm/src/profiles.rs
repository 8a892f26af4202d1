//! Profiles of computing centers, as data. Other sites are detected.

use std::collections::BTreeMap;

use regex::Regex;
use serde::{Deserialize, Serialize};
use torc_api::cluster::{Partition, SlurmClusterSpec};

/// The name of a detected profile.
pub const DETECTED: &str = "slurm";

const KNOWN: [&str; 2] = [include_str!("../profiles/kestrel.toml"), include_str!("../profiles/dane.toml")];

/// The cluster of a computing center.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteProfile {
    /// The name in commands.
    pub name: String,
    /// The name for users.
    #[serde(default)]
    pub title: String,
    /// The charge of a node-hour without GPUs.
    #[serde(default = "one")]
    pub charge_factor_cpu: f64,
    /// The charge of a node-hour with GPUs.
    #[serde(default = "one")]
    pub charge_factor_gpu: f64,
    /// The conditions that identify the cluster.
    #[serde(default)]
    pub detect: DetectionRule,
    /// The partitions, with the form of a SlurmCluster document.
    #[serde(default)]
    pub partitions: Vec<Partition>,
}

const fn one() -> f64 {
    1.0
}

/// Conditions that identify a cluster. Any of them suffices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DetectionRule {
    /// Environment variables; the cluster matches if one of them has this value.
    #[serde(default)]
    pub variables: BTreeMap<String, String>,
    /// Regular expressions; the cluster matches if one of them matches the host name.
    #[serde(default)]
    pub hostnames: Vec<String>,
    /// Paths of files; the cluster matches if one of them exists.
    #[serde(default)]
    pub files: Vec<String>,
}

/// An error for an invalid profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("profile: {reason}")]
pub struct BadProfile {
    reason: String,
}

impl SiteProfile {
    /// Reads a profile from TOML.
    pub fn read(text: &str) -> Result<Self, BadProfile> {
        let bad = |reason: String| BadProfile { reason };
        let profile: Self = toml::from_str(text).map_err(|error| bad(error.to_string()))?;
        for pattern in &profile.detect.hostnames {
            Regex::new(pattern).map_err(|error| bad(format!("hostname {pattern:?}: {error}")))?;
        }
        for partition in &profile.partitions {
            torc_api::quantity::parse_walltime(&partition.max_walltime)
                .map_err(|error| bad(format!("partition {:?}: {error}", partition.name)))?;
        }
        Ok(profile)
    }

    /// Returns whether this is the current cluster.
    pub fn matches(&self, here: &DetectContext<'_>) -> bool {
        let variable = |(name, value): (&String, &String)| (here.variable)(name).as_ref() == Some(value);
        let hostname = |pattern: &String| Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(here.hostname));
        self.detect.variables.iter().any(variable)
            || self.detect.hostnames.iter().any(hostname)
            || self.detect.files.iter().any(|path| (here.file_exists)(path))
    }

    /// Returns the profile as a document.
    pub fn to_cluster(&self) -> SlurmClusterSpec {
        SlurmClusterSpec { partitions: self.partitions.clone(), ..SlurmClusterSpec::default() }
    }
}

/// The properties of the current machine.
pub struct DetectContext<'a> {
    pub hostname: &'a str,
    /// Returns the value of a variable.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// Returns whether a file exists.
    pub file_exists: &'a dyn Fn(&str) -> bool,
}

/// Returns the profiles that come with Torc.
pub fn known() -> Result<Vec<SiteProfile>, BadProfile> {
    KNOWN.into_iter().map(SiteProfile::read).collect()
}

/// Returns the profile of the current cluster. Custom profiles come first.
pub fn find<'a>(profiles: &'a [SiteProfile], here: &DetectContext<'_>) -> Option<&'a SiteProfile> {
    profiles.iter().find(|profile| profile.matches(here))
}

/// Returns a profile with detected partitions.
pub fn detected(partitions: Vec<Partition>) -> SiteProfile {
    SiteProfile {
        name: DETECTED.to_owned(),
        title: "detected".to_owned(),
        charge_factor_cpu: 1.0,
        charge_factor_gpu: 1.0,
        partitions,
        ..SiteProfile::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn at<'a>(hostname: &'a str, variables: &'a [(&'a str, &'a str)]) -> Option<String> {
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let here = DetectContext { hostname, variable: &variable, file_exists: &|_| false };
        find(&known().unwrap(), &here).map(|profile| profile.name.clone())
    }

    #[test]
    fn known_sites_are_well_formed_and_recognised() {
        let names: Vec<String> = known().unwrap().into_iter().map(|profile| profile.name).collect();
        assert_eq!(names, ["kestrel", "dane"]);
        assert_eq!(at("laptop", &[("NLR_CLUSTER", "kestrel")]).as_deref(), Some("kestrel"));
        assert_eq!(at("laptop", &[("CLUSTER", "dane")]).as_deref(), Some("dane"));
        assert_eq!(at("kl3", &[]).as_deref(), Some("kestrel"));
        assert_eq!(at("dane12", &[]).as_deref(), Some("dane"));
        assert_eq!(at("laptop", &[("CLUSTER", "kestrel")]), None);
        assert_eq!(at("xkl3", &[]), None);
    }

    /// Site, partition, CPUs, MiB and time limit, GPUs of a node, maximum nodes of a job, properties.
    #[test]
    fn partitions_of_the_known_sites() {
        let expected = [
            "kestrel debug 104 246064 1h - 2 requiresExplicitRequest",
            "kestrel short 104 246064 4h - - -",
            "kestrel standard 104 246064 2d - - -",
            "kestrel long 104 246064 10d - - -",
            "kestrel medmem 104 984256 10d - - -",
            "kestrel bigmem 104 2000000 2d - - -",
            "kestrel bigmeml 104 2000000 10d - - -",
            "kestrel shared 104 246064 2d - 1 shared",
            "kestrel sharedl 104 246064 10d - 1 shared",
            "kestrel hbw 104 246064 2d - - requiresExplicitRequest",
            "kestrel hbwl 104 246064 10d - - requiresExplicitRequest",
            "kestrel nvme 104 246064 2d - - requiresExplicitRequest",
            "kestrel debug-gpu 128 350000 1h 4 h100 2 requiresExplicitRequest",
            "kestrel gpu-h100s 128 350000 4h 4 h100 - shared",
            "kestrel gpu-h100 128 350000 2d 4 h100 - shared",
            "kestrel gpu-h100l 128 350000 10d 4 h100 - shared",
            "dane pdebug 112 256000 1h - - requiresExplicitRequest",
            "dane pbatch 112 256000 1d - - -",
        ];
        let line = |site: &str, partition: &Partition| {
            let gpus =
                partition.gpus_per_node.zip(partition.gpu_type.as_ref()).map(|(count, kind)| format!("{count} {kind}"));
            let nodes = partition.nodes.map(|nodes| nodes.to_string());
            let flags =
                [("shared", partition.shared), ("requiresExplicitRequest", partition.requires_explicit_request)];
            let flags: Vec<&str> =
                flags.into_iter().filter(|(_, flag)| *flag == Some(true)).map(|(name, _)| name).collect();
            let flags = if flags.is_empty() { "-".to_owned() } else { flags.join(" ") };
            let Partition { name, cpus_per_node, memory_mb, max_walltime, .. } = partition;
            let (gpus, nodes) = (gpus.unwrap_or_else(|| "-".to_owned()), nodes.unwrap_or_else(|| "-".to_owned()));
            format!("{site} {name} {cpus_per_node} {memory_mb} {max_walltime} {gpus} {nodes} {flags}")
        };
        let profiles = known().unwrap();
        let found: Vec<String> = profiles
            .iter()
            .flat_map(|site| site.partitions.iter().map(|partition| line(&site.name, partition)))
            .collect();
        assert_eq!(found, expected);
        let charges: Vec<(&str, &str, f64, f64)> = profiles
            .iter()
            .map(|site| (site.name.as_str(), site.title.as_str(), site.charge_factor_cpu, site.charge_factor_gpu))
            .collect();
        assert_eq!(charges, [("kestrel", "NLR (NREL) Kestrel", 10.0, 100.0), ("dane", "LLNL Dane", 1.0, 1.0)]);
    }

    #[test]
    fn each_mark_of_a_site_is_enough_and_nothing_else_is() {
        let cases = [
            ("laptop", ("NREL_CLUSTER", "kestrel"), Some("kestrel")),
            ("laptop", ("NREL_CLUSTER", "eagle"), None),
            ("node1.kestrel.hpc.nrel.gov", ("", ""), Some("kestrel")),
            ("node1.kestrel.hpc.nrel.gov.evil.org", ("", ""), None),
            ("kestrel-hpc-nrel-gov", ("", ""), None),
            ("kl", ("", ""), None),
            ("dane", ("", ""), None),
            ("kl1", ("CLUSTER", "dane"), Some("kestrel")),
            ("laptop", ("", ""), None),
        ];
        for (hostname, variable, expected) in cases {
            assert_eq!(at(hostname, &[variable]).as_deref(), expected, "{hostname} {variable:?}");
        }
    }

    #[test]
    fn custom_profiles_are_asked_first() {
        let read =
            |name: &str| SiteProfile::read(&format!("name = \"{name}\"\n[detect]\nhostnames = [\"^x$\"]\n")).unwrap();
        let profiles = [read("mine"), read("yours")];
        let here = DetectContext { hostname: "x", variable: &|_| None, file_exists: &|_| false };
        assert_eq!(find(&profiles, &here).map(|profile| profile.name.as_str()), Some("mine"));
        assert_eq!((profiles[0].charge_factor_cpu, profiles[0].charge_factor_gpu), (1.0, 1.0));
    }

    #[test]
    fn a_custom_profile_is_checked() {
        let good = "name = \"mine\"\n[detect]\nfiles = [\"/etc/mine\"]\n\
                    [[partitions]]\nname = \"p\"\ncpusPerNode = 4\nmemoryMb = 4000\nmaxWalltime = \"1-00:00:00\"\n";
        let profile = SiteProfile::read(good).unwrap();
        let exists = |path: &str| path == "/etc/mine";
        let here = DetectContext { hostname: "x", variable: &|_| None, file_exists: &exists };
        assert!(profile.matches(&here));
        assert_eq!(profile.to_cluster().partitions.len(), 1);
        let bad = [
            ("name = \"m\"\nspeed = 1\n", "speed"),
            ("name = \"m\"\n[detect]\nhostnames = [\"(\"]\n", "hostname"),
            (&good.replace("1-00:00:00", "soon"), "soon"),
            ("title = \"nameless\"\n", "name"),
        ];
        for (text, word) in bad {
            let error = SiteProfile::read(text).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn a_detected_profile_is_one_like_the_others() {
        let partition = Partition { name: "p".to_owned(), max_walltime: "1h".to_owned(), ..Partition::default() };
        let profile = detected(vec![partition]);
        assert_eq!((profile.name.as_str(), profile.title.as_str(), profile.partitions.len()), ("slurm", "detected", 1));
        assert_eq!((profile.charge_factor_cpu, profile.charge_factor_gpu), (1.0, 1.0));
        assert_eq!(SiteProfile::read(&toml::to_string(&profile).unwrap()), Ok(profile));
    }
}
