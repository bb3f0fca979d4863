//! `cargo xtask dist`: builds the files of a release. All of them are reproducible: the same commit, compiler and system
//! libraries lead to the same bytes.
//!
//! The files are a tarball, a package for Debian, a bill of materials (SPDX) and checksums. [`check`] makes the files from
//! the binary of the tests, twice, and installs the package in an empty root.

mod bill;
mod installation;
mod packages;
mod tree;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, anyhow, bail};

use crate::{exec, workspace};

/// Properties of the release that all files share.
struct Release {
    /// Cargo profile of the binary.
    profile: &'static str,
    /// The binary, with symbols or without.
    binary: PathBuf,
    version: String,
    /// Target of the compiler, such as `x86_64-unknown-linux-gnu`.
    target: String,
    /// Time of all files, in seconds since 1970.
    epoch: String,
}

impl Release {
    fn new(profile: &'static str, binary: PathBuf) -> anyhow::Result<Self> {
        let metadata = workspace::metadata()?;
        let mut packages = metadata["packages"].as_array().into_iter().flatten();
        let package = packages.find(|package| package["name"] == "allstop-cli");
        let version = package.and_then(|package| package["version"].as_str());
        let rustc = exec::output(Command::new("rustc").arg("-vV"))?;
        let target = rustc.lines().find_map(|line| line.strip_prefix("host: "));
        Ok(Self {
            profile,
            binary,
            version: version.context("allstop-cli has no version")?.to_owned(),
            target: target.context("rustc names no host")?.to_owned(),
            epoch: epoch()?,
        })
    }

    /// Folder of the built files of the profile.
    fn build_folder(&self) -> anyhow::Result<PathBuf> {
        let folder = self.binary.parent().context("the binary has no folder")?;
        Ok(folder.to_owned())
    }

    fn is_fast(&self) -> bool {
        self.profile == "dev"
    }
}

/// The time that the variable `SOURCE_DATE_EPOCH` names, or else the time of the commit.
fn epoch() -> anyhow::Result<String> {
    if let Some(epoch) = variable("SOURCE_DATE_EPOCH") {
        return epoch
            .into_string()
            .map_err(|_| anyhow!("SOURCE_DATE_EPOCH is not text"));
    }
    let mut git = Command::new("git");
    git.current_dir(workspace::root());
    let time = exec::output(git.args(["log", "-1", "--format=%ct"]))?;
    Ok(time.trim().to_owned())
}

fn variable(name: &str) -> Option<OsString> {
    #[expect(
        clippy::disallowed_methods,
        reason = "settings of Cargo and of reproducible builds"
    )]
    std::env::var_os(name)
}

pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    match args {
        [] => {}
        [check] if check == "--check" => return check_built(),
        _ => bail!("`cargo xtask dist` takes no arguments except --check"),
    }
    exec::step("build", &mut build()?)?;
    let binary = workspace::target_dir()?.join("release/allstop");
    exec::check("no paths of this machine", || check_paths(&binary))?;
    let release = Release::new("release", binary)?;
    let folder = workspace::target_dir()?.join("dist");
    make(&release, &folder)?;
    exec::check("installation", || installation::check(&folder))?;
    println!("{}", folder.display());
    Ok(())
}

/// Checks the release files of the binary that the last test run or `cargo build` has built.
fn check_built() -> anyhow::Result<()> {
    let binary = workspace::target_dir()?.join("debug/allstop");
    if !binary.exists() {
        bail!("{} was not built: run `cargo build`", binary.display());
    }
    exec::check("files of a release", || check(&binary))
}

/// Makes the release files from the binary of the tests, twice, and checks them.
pub(crate) fn check(binary: &Path) -> anyhow::Result<()> {
    let release = Release::new("dev", binary.to_owned())?;
    let folder = workspace::target_dir()?.join("dist-check");
    let sums = || {
        make(&release, &folder)?;
        fs::read_to_string(folder.join(packages::SUMS)).context("the checksums")
    };
    let (first, second) = (sums()?, sums()?);
    if first != second {
        bail!("the files are not reproducible:\n{first}\n{second}");
    }
    installation::check(&folder)
}

/// Makes all files in an empty folder.
fn make(release: &Release, folder: &Path) -> anyhow::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    let tree = tree::make(release)?;
    packages::tarball(release, &tree, folder)?;
    packages::debian(release, folder)?;
    let bill = format!("allstop-{}.spdx.json", release.version);
    fs::copy(tree.join(tree::BILL), folder.join(bill))?;
    packages::sums(folder)
}

/// The build of the binary, without paths of this machine.
fn build() -> anyhow::Result<Command> {
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--release", "--locked", "--package=allstop-cli"]);
    let folders = [
        (workspace::root().to_owned(), "/allstop"),
        (cargo_home()?, "/cargo"),
    ];
    let flags = |option: &str, separator: &str| {
        let flags = folders
            .iter()
            .map(|(from, to)| format!("{option}={}={to}", from.display()));
        flags.collect::<Vec<_>>().join(separator)
    };
    // Cargo separates the encoded flags by this character, because paths may contain spaces.
    cargo.env(
        "CARGO_ENCODED_RUSTFLAGS",
        flags("--remap-path-prefix", "\u{1f}"),
    );
    cargo.env("CFLAGS", flags("-ffile-prefix-map", " "));
    Ok(cargo)
}

fn cargo_home() -> anyhow::Result<PathBuf> {
    let named = variable("CARGO_HOME").map(PathBuf::from);
    let below_home = || std::env::home_dir().map(|home| home.join(".cargo"));
    named
        .or_else(below_home)
        .context("the folder of Cargo is unknown")
}

/// Fails if the binary contains a folder of this machine. Such a binary is not reproducible in another folder.
fn check_paths(binary: &Path) -> anyhow::Result<()> {
    let bytes = fs::read(binary)?;
    for folder in [workspace::root().to_owned(), cargo_home()?] {
        let folder = folder.to_string_lossy();
        let mut windows = bytes.windows(folder.len());
        if windows.any(|window| window == folder.as_bytes()) {
            bail!("{} contains the path {folder}", binary.display());
        }
    }
    Ok(())
}
