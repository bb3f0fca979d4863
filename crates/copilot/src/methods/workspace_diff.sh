# Prints the changes in the working directory: a record with the base branch, the list of the changed files, and their
# patches. $1 is the mode, and $2 is the path of a temporary copy of the index, which makes new files part of the changes.
# Exit code 3: the folder is not in a repository, or git is not installed.
exec 2>/dev/null
# The repository may come from another author, so git runs neither its hooks nor its viewers of differences. Git has to run
# the filters that the repository defines for its files.
run() {
    git -c core.fsmonitor=false -c core.hooksPath=/dev/null "$@"
}
[ "$(run rev-parse --is-inside-work-tree)" = true ] || exit 3
index=$(run rev-parse --git-path index) || exit 4
if [ -e "$index" ]; then
    cp -- "$index" "$2" || exit 4
fi
base=
commit=
if [ "$1" = branch ]; then
    for name in "$(run rev-parse --abbrev-ref origin/HEAD)" main master; do
        commit=$(run merge-base HEAD "$name" --) && base=$name && break
    done
fi
printf '%s\0' "$base"
export GIT_INDEX_FILE="$2"
run add --intent-to-add --ignore-removal -- . || exit 4
shift 2
run diff --raw -z --patch --find-renames --relative --submodule=short --no-color --no-ext-diff --no-textconv \
    --src-prefix=a/ --dst-prefix=b/ "$@" ${commit:+"$commit"} -- || exit 4
