//! Programs and shell built-ins that run other programs, depending on their arguments.
//!
//! The tables list the usual launchers. An unlisted program is assumed to run no other program. The same assumption
//! holds for the files that a listed program reads: a `Makefile`, a hook, a configuration, a script given by its path.
//! Without this assumption, each command could do the action of a denying rule. The option `--yes`, which permits calls
//! in advance, could then not permit even `cargo test`.

use super::parsed::CommandWord;
use super::sed;

/// Shells and built-ins whose arguments or input are commands.
const SHELLS_AND_BUILTINS: &str = ". [[ alias ash bash bash-static bind builtin case command compgen complete coproc csh dash declare enable eval \
    exec export fc fish function getopts hash jobs ksh let local mapfile mksh pwsh rbash readarray readonly select \
    sh source tcsh trap typeset yash zsh";

/// Programs that run the command in their arguments: in a different way, at a different time, as a different user or in
/// a different place.
const LAUNCHERS: &str = "ansible apptainer at batch busybox bwrap capsh catchsegv choom chpst chronic chroot chrt cpulimit crontab \
    daemonize dbus-launch dbus-run-session debconf direnv distrobox doas docker docker-compose dtach entr env \
    expect fakeroot faketime firejail flatpak flock gdb gdbserver gtime hyperfine i386 ifne ionice kubectl ld \
    ld-linux ld-linux-aarch64 ld-linux-x86-64 ld-musl-aarch64 ld-musl-x86_64 linux32 linux64 lldb logsave ltrace \
    lxc lxc-attach machinectl mosh mpirun nerdctl newgrp nice nohup nsenter numactl parallel pee perf pkexec \
    podman podman-compose prlimit proot proxychains rlwrap rsh rsync run-parts run0 runcon runuser scp screen \
    script scriptlive sem setarch setlock setpriv setsid sftp sg singularity softlimit srun ssh ssh-agent \
    start-stop-daemon stdbuf strace su sudo systemd-cat systemd-inhibit systemd-run taskset tclsh time timelimit \
    timeout tmux torsocks toybox uclampset uname26 unbuffer unshare valgrind watch watchexec x86_64 xargs xdg-open \
    xvfb-run";

/// Interpreters and tools whose arguments contain programs or commands.
const INTERPRETERS: &str = "awk bun dc deno elixir erl gawk ghci gnuplot groovy guile iex ipython irb java jshell julia kotlin lua luajit \
    m4 mariadb mawk mysql nawk node nodejs nu octave original-awk osascript perl php prove psql pypy python R \
    Rscript ruby runghc scala sqlite3 swift ts-node tsx";

/// Programs that have a command to start a shell, or that take a shell command as an argument.
const EDITORS_AND_PAGERS: &str = "ed editor emacs emacs-gtk emacs-lucid emacs-nox emacsclient ex ftp fzf hg less lynx mail mailx man more most \
    mutt nano nc ncat netcat nvim pager pico rlogin rview rvim socat svn telnet vi view vim vimdiff vipw visudo \
    w3m";

/// Programs that run scripts of a project or of packages, under names that the project or the package chooses.
const BUILD_AND_PACKAGES: &str = "ant apk apt apt-get bazel bmake brew bundle cmake composer conda dnf dpkg gem gh go gradle gradlew just make \
    mamba meson mvn mvnw ninja nix nix-shell npm npx nx pacman pip pipenv pipx pnpm poetry rake rpm rustup snap \
    task tox turbo uv uvx yarn yum zypper";

const ALWAYS: &[&str] = &[
    SHELLS_AND_BUILTINS,
    LAUNCHERS,
    INTERPRETERS,
    EDITORS_AND_PAGERS,
    BUILD_AND_PACKAGES,
];

/// Programs that run another program only with certain options. [`matches_option`] describes the syntax of the options.
const BY_OPTION: &[(&str, &str)] = &[
    ("[ printf test", "$( ` -v"),
    ("read unset", "$( `"),
    ("bat", "--pager"),
    ("bsdtar", "--use-compress-program :"),
    (
        "c++ c89 c99 cc cpp g++ gcc",
        "-wrapper -specs --specs -fplugin --prefix -B @",
    ),
    ("clang clang++", "-fplugin -load -B @"),
    ("cpio", "--rsh-command :"),
    ("fd fdfind", "-x -X --exec --exec-batch"),
    ("find", "-exec -ok"),
    ("install", "--strip-program"),
    ("ip", "netns vrf -b"),
    ("patch", "-e --ed"),
    ("rg", "--pre --hostname-bin"),
    (
        "latex lualatex pdflatex pdftex tex xelatex",
        "-shell-escape --shell-escape -enable-write18",
    ),
    ("rustc", "-C --codegen @"),
    ("set", "-k keyword"),
    ("sort", "--compress-program"),
    ("split", "--filter"),
    (
        "tar",
        "--checkpoint-action --info-script --new-volume-script --rmt-command --rsh-command --to-command \
         --use-compress-program --files-from -F -I -T :",
    ),
    ("tcpdump", "-z"),
    ("wait", "-p"),
    ("wget", "--use-askpass --execute --config -e"),
    ("zip", "--unzip-command -T"),
];

/// Subcommands that run another program only with certain options. An unlisted subcommand may be an alias of any
/// command.
const BY_SUBCOMMAND: &[(&str, &str, &str)] = &[
    (
        "cargo",
        "add b bench build c check clean clippy d doc fetch fmt init install locate-project metadata new nextest \
         package pkgid publish remove search t test tree uninstall update vendor version",
        "--config -C",
    ),
    (
        "git",
        "add apply blame branch cat-file check-ignore checkout cherry-pick clean commit count-objects describe \
         diff fetch grep init log ls-files ls-tree merge merge-base mv name-rev pull push reflog remote reset \
         restore rev-list rev-parse revert rm shortlog show show-ref stash status switch tag worktree",
        "--config --exec --ext-diff --open-files-in-pager --receive-pack --strategy --template --textconv --upload-pack -O \
         ext::",
    ),
];

/// True if the arguments could make the program run another program.
pub(super) fn may_run_another(program: &str, arguments: &[CommandWord]) -> bool {
    names(program).any(|name| {
        match name {
            "sed" => return sed::may_run_another(arguments),
            // The short form `for x do` has a command in the same clause, which is not parsed. So this form counts as a
            // command that may run another program.
            "for" => {
                let is_short = arguments.get(1).is_some_and(|word| word.text != "in");
                return is_short || arguments.first().is_some_and(is_special_variable);
            }
            "read" if arguments.iter().any(is_special_variable) => return true,
            _ => {}
        }
        let by_option = BY_OPTION
            .iter()
            .find(|(listed, _)| contains_word(listed, name));
        let by_subcommand = BY_SUBCOMMAND.iter().find(|(listed, ..)| *listed == name);
        if let Some((_, options)) = by_option {
            has_any(arguments, options)
                || name == "tar" && arguments.first().is_some_and(is_old_style_launch)
        } else if let Some((_, known, options)) = by_subcommand {
            let is_known = |word: &CommandWord| !word.expands && contains_word(known, &word.text);
            !subcommand(arguments).is_none_or(is_known) || has_any(arguments, options)
        } else {
            ALWAYS.iter().any(|group| contains_word(group, name))
        }
    })
}

/// True if a shell or a program may read the variable with this name: a shell with tracing runs the commands in `PS4`,
/// and `PAGER` names a program. Such names have capital letters. A `[` begins a subscript, in which a shell may run
/// commands.
fn is_special_variable(name: &CommandWord) -> bool {
    name.expands
        || name
            .text
            .contains(|c: char| c.is_ascii_uppercase() || c == '[')
}

/// Returns the names under which the tables may list a program: `python3.11` is `python`, `vim.tiny` is `vim`, `gsed`
/// may be `sed`, and `x86_64-linux-gnu-gcc-12` is `gcc`.
fn names(program: &str) -> impl Iterator<Item = &str> {
    let first_part = program.split('.').next().unwrap_or_default();
    let is_version = |c: char| c.is_ascii_digit() || c == '.' || c == '-';
    let bare = program.trim_end_matches(is_version);
    let last_part = bare.rsplit('-').next().unwrap_or_default();
    let mut names = vec![program, first_part, bare, last_part];
    names.extend(program.strip_prefix('g'));
    // A program such as `.` has no parts and is listed under its full name.
    names.into_iter().filter(|name| !name.is_empty())
}

/// Returns the subcommand: the first word after options that do not affect the program (`-C FOLDER` and `--no-pager`).
fn subcommand(arguments: &[CommandWord]) -> Option<&CommandWord> {
    match arguments {
        [option, rest @ ..] if option.text == "--no-pager" => subcommand(rest),
        [option, _, rest @ ..] if option.text == "-C" => subcommand(rest),
        _ => arguments.first(),
    }
}

fn contains_word(words: &str, word: &str) -> bool {
    words.split(' ').any(|listed| listed == word)
}

fn has_any(arguments: &[CommandWord], options: &str) -> bool {
    let matches_any = |word: &CommandWord| {
        options
            .split(' ')
            .any(|option| matches_option(word, option))
    };
    arguments
        .iter()
        .any(|word| word.may_become_option() || matches_any(word))
}

/// True if an argument matches the option. `--long` matches with or without a value, and also if it is abbreviated.
/// `-x` also matches if its letter stands among other letters, as in `-vx`. `-word` matches as a prefix of the
/// argument. Any other text matches at any position in the argument.
fn matches_option(word: &CommandWord, option: &str) -> bool {
    let text = &*word.text;
    if option.starts_with("--") {
        let name = text.split('=').next().unwrap_or_default();
        return name.len() > 2 && option.starts_with(name);
    }
    match option.strip_prefix('-') {
        Some(letter) if letter.len() == 1 => {
            text.starts_with('-') && !text.starts_with("--") && text.contains(letter)
        }
        Some(_) => text.starts_with(option),
        None => text.contains(option),
    }
}

/// True if the first argument of `tar` contains options that run a program, written without a dash.
fn is_old_style_launch(word: &CommandWord) -> bool {
    !word.text.starts_with('-') && word.text.contains(['I', 'F'])
}
