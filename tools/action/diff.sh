#!/usr/bin/env bash
# What the commits since BASE did to the models of CONFIG, as Markdown on stdout.
#
#     bash diff.sh BASE CONFIG
#
# Analyzes every model in a second work tree at BASE and in this one, by PYTHON (python).
# A model that can't be analyzed on one side is left out there; the comment says so.
set -euo pipefail

base=$1 config=$2 python=${PYTHON:-python}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'git worktree remove --force "$work/tree" 2>/dev/null || true; rm -rf "$work"' EXIT

# The reports of all models that stand in this work tree, into the folder $1.
reports() {
    "$python" -m graphmem check --config "$config" --baseline "$1" --update-baseline --quiet \
        > /dev/null || true
}

reports "$work/head"
git worktree add --quiet --detach "$work/tree" "$base" >&2
if [[ -e "$work/tree/$config" ]]; then
    (cd "$work/tree" && reports "$work/base")
fi
"$python" "$here/comment.py" "$work/base" "$work/head"
