#!/usr/bin/env bash
# Writes the text of a file as graphmem's comment on a pull request, in the place of an older one.
#
#     bash comment.sh OWNER/REPOSITORY NUMBER FILE
#
# Needs the GitHub CLI and a token in GH_TOKEN.
set -euo pipefail

repository=$1 number=$2 file=$3
mark=$(head -n 1 "$file")
old=$(gh api --paginate "repos/$repository/issues/$number/comments" \
    --jq ".[] | select(.body | startswith(\"$mark\")) | .id" | head -n 1)
if [[ -n $old ]]; then
    gh api --method PATCH "repos/$repository/issues/comments/$old" --field body=@"$file" > /dev/null
else
    gh api --method POST "repos/$repository/issues/$number/comments" --field body=@"$file" > /dev/null
fi
