//! Builds what a level needs from the Go module proxy, once per version, into the cache; afterwards no network is
//! needed. A program appears in the cache whole or not at all.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};

use super::{
    Level,
    cache::{Cache, make_dir, write},
    modules::{MODULES, Module, Program},
    progress::{Progress, span, tail},
    toolchain,
};

/// How often a long build says that it is still at it.
const REMINDER: Duration = Duration::from_secs(30);

/// The programs of one module that a level needs and the cache does not have.
#[derive(Debug)]
pub(super) struct Missing<'a> {
    /// The module.
    pub module: &'a Module,
    /// Its missing programs.
    pub programs: Vec<&'a Program>,
}

/// Where the cache has, or will have, a program.
#[must_use]
pub(super) fn path(cache: &Cache, module: &Module, program: &Program) -> PathBuf {
    cache.programs(&module.key()).join(program.name)
}

/// What is still to be built; `skip` names programs that are taken from elsewhere.
pub(super) fn missing(cache: &Cache, level: Level, skip: impl Fn(&str) -> bool) -> Vec<Missing<'static>> {
    MODULES
        .iter()
        .map(|module| Missing {
            module,
            programs: module
                .programs
                .iter()
                .filter(|program| program.level <= level && !skip(program.name))
                .filter(|program| !path(cache, module, program).is_file())
                .collect(),
        })
        .filter(|missing| !missing.programs.is_empty())
        .collect()
}

/// Builds them, after any other run that builds has finished.
///
/// # Errors
/// When Go is missing or a build fails, with the end of its log.
pub(super) fn build(
    cache: &Cache,
    level: Level,
    jobs: Option<u32>,
    skip: impl Fn(&str) -> bool,
    progress: Progress,
) -> Result<()> {
    if missing(cache, level, &skip).is_empty() {
        return Ok(());
    }
    let _lock = cache.lock("build", || {
        progress.say(format_args!("waiting for another run that builds"));
    })?;
    let missing = missing(cache, level, skip);
    if missing.is_empty() {
        return Ok(());
    }
    let go = toolchain::find(cache, &progress)?;
    for Missing { module, programs } in missing {
        let sources = cache.sources(&module.key());
        make_dir(&sources)?;
        for (name, content) in module.files {
            write(&sources.join(name), content)?;
        }
        for program in programs {
            let target = path(cache, module, program);
            compile(
                cache,
                &Job {
                    go: &go,
                    sources: &sources,
                    module,
                    program,
                    jobs,
                },
                &target,
                progress,
            )?;
        }
    }
    Ok(())
}

struct Job<'a> {
    go: &'a Path,
    sources: &'a Path,
    module: &'a Module,
    program: &'a Program,
    jobs: Option<u32>,
}

impl Job<'_> {
    /// At low priority, because the machine is somebody's desk.
    fn command(&self, output: &Path) -> Command {
        let mut command = Command::new("nice");
        command
            .args(["-n", "10"])
            .arg(self.go)
            .args(["build", "-trimpath", "-ldflags"])
            .arg(self.module.link_flags());
        if !self.module.tags.is_empty() {
            command.args(["-tags", self.module.tags]);
        }
        if let Some(jobs) = self.jobs {
            command.arg("-p").arg(jobs.to_string());
        }
        command.arg("-o").arg(output).arg(self.program.package);
        // The developer's own settings must not decide what comes out.
        command
            .current_dir(self.sources)
            .env("CGO_ENABLED", "0")
            .env("GOFLAGS", "-mod=readonly")
            .env("GOWORK", "off");
        command
    }
}

fn compile(cache: &Cache, job: &Job<'_>, target: &Path, progress: Progress) -> Result<()> {
    let name = job.program.name;
    progress.say(format_args!("building {name} {}", job.module.version));
    let folder = target.parent().context("a program has a folder")?;
    make_dir(folder)?;
    make_dir(&cache.logs())?;
    let log = cache.logs().join(format!("build-{name}.log"));
    let unfinished = folder.join(format!(".{name}.unfinished"));
    let begun = Instant::now();
    let out = File::create(&log).with_context(|| format!("making {}", log.display()))?;
    let mut child = job
        .command(&unfinished)
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out)
        .spawn()
        .context("starting nice go build")?;
    let mut reminders = 0;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(100));
        if begun.elapsed() >= REMINDER * (reminders + 1) {
            reminders += 1;
            progress.say(format_args!("  still building {name}, {}", span(begun.elapsed())));
        }
    };
    if !status.success() {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        bail!(
            "building {name} failed ({status}); the end of {}:\n{}",
            log.display(),
            tail(&text, 20)
        );
    }
    ensure!(unfinished.is_file(), "go build of {name} left no program");
    std::fs::rename(&unfinished, target).with_context(|| format!("moving {name} into the cache"))?;
    progress.say(format_args!("built {name} in {}", span(begun.elapsed())));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(missing: &[Missing<'_>]) -> Vec<&'static str> {
        let programs = missing.iter().flat_map(|missing| &missing.programs);
        MODULES
            .iter()
            .flat_map(|module| module.programs)
            .map(|program| program.name)
            .filter(|name| programs.clone().any(|program| program.name == *name))
            .collect()
    }

    #[test]
    fn a_level_needs_only_what_it_runs() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().to_owned());
        let api = ["etcd", "kube-apiserver", "kubectl"];
        assert_eq!(names(&missing(&cache, Level::Api, |_| false)), api);
        let control_plane = [
            "etcd",
            "kube-apiserver",
            "kubectl",
            "kube-controller-manager",
            "kube-scheduler",
        ];
        assert_eq!(
            names(&missing(&cache, Level::ControlPlane, |_| false)),
            control_plane
        );
        assert_eq!(names(&missing(&cache, Level::Node, |_| false)).len(), 14);
    }

    #[test]
    fn what_is_in_the_cache_or_found_elsewhere_is_not_built() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().to_owned());
        let etcd = path(&cache, &MODULES[0], &MODULES[0].programs[0]);
        make_dir(etcd.parent().unwrap()).unwrap();
        write(&etcd, "").unwrap();
        assert_eq!(
            names(&missing(&cache, Level::Api, |name| name == "kubectl")),
            ["kube-apiserver"]
        );
    }
}
