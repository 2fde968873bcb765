#!/bin/bash
# test_completion.sh - man pages and completions have exactly the program's commands and options.
#
# $HEADLIGHT comes from the Makefile.  bash's completion is run; zsh and fish read theirs, if they
# are installed.
# shellcheck source=tests/tools/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
program=${HEADLIGHT:-build/headlight}
table=$scratch/table
"$program" help --table >"$table"

# -------------------------------------------------------------------- the table

columns() { # checks that every line has its columns, and none is empty
    awk -F '\t' '$1 == "command" && NF == 3 { n++; next } ($1 == "option" || $1 == "shared") && NF == 7 { m++; next }
        { print; bad = 1 } { for (i = 1; i <= NF; i++) if ($i == "") bad = 1 }
        END { exit bad || n < 20 || m < 300 }' "$table"
}
check "help --table has a line for every command and option" columns

# --help shows the same names, letters and values as the table.
same_as_help() {
    local command
    while read -r command; do
        "$program" "$command" --help | sed -n '/^options:/,$p' | grep -oE '^  (-., |    )--[a-z0-9-]+' |
            sed 's/^ *//' >"$scratch/help"
        awk -F '\t' -v c="$command" '$2 == c && $1 != "command" { print ($3 == "-" ? "" : "-" $3 ", ") "--" $4 }' \
            "$table" >"$scratch/rows"
        diff "$scratch/help" "$scratch/rows" || return 1
    done < <(awk -F '\t' '$1 == "command" { print $2 }' "$table")
}
check "and the options of --help" same_as_help

# -------------------------------------------------------------------- man pages

every_page() {
    local command
    while read -r command; do
        [ -f "doc/man/headlight-$command.1.scd" ] || { echo "no page: $command" && return 1; }
        grep -q "headlight-$command\\*(1)" doc/man/headlight.1.scd || { echo "headlight(1) leaves out $command" && return 1; }
    done < <(awk -F '\t' '$1 == "command" { print $2 }' "$table")
}
check "every command has a page, which headlight(1) names" every_page

current() { # page
    tools/man_page "$table" "$1" >"$scratch/page" && diff -u "$1" "$scratch/page" && return
    echo "make man-sources brings it up to date"
    return 1
}
for page in doc/man/*.1.scd; do
    check "the options of ${page##*/} are the program's" current "$page"
done

# The check must notice an option removed or added, a changed value, and a removed command.
cp doc/man/headlight-merge.1.scd doc/man/headlight.1.scd "$scratch"
unknown() { fails tools/man_page <(grep -v $'\tmerge\to\toutput' "$table") "$scratch/headlight-merge.1.scd"; }
check "a page with an option that is gone is refused" unknown
added() {
    { cat "$table" && printf 'option\tmerge\tx\textra\ttext\tFILE\tand more\n'; } >"$scratch/more"
    tools/man_page "$scratch/more" "$scratch/headlight-merge.1.scd" >"$scratch/page"
    grep -qxF '*-x*, *--extra* _FILE_' "$scratch/page" && grep -qx $'\tAnd more\\.' "$scratch/page"
}
check "an option that a page does not have is added" added
renamed() {
    sed $'s/^option\tmerge\to\toutput\ttext\tFILE/option\tmerge\t-\toutput\tchoice\ta|b/' "$table" >"$scratch/other"
    tools/man_page "$scratch/other" "$scratch/headlight-merge.1.scd" | grep -qxF '*--output* *a*|*b*'
}
check "letters and values are the table's" renamed
unlisted() {
    { cat "$table" && printf 'command\tnovelty\tnew\n'; } >"$scratch/more"
    fails tools/man_page "$scratch/more" "$scratch/headlight.1.scd"
}
check "a command that headlight(1) leaves out is an error" unlisted

# -------------------------------------------------------------------- completion

for shell in bash zsh fish; do
    check "completion for $shell is made" eval "tools/completion $shell '$table' >'$scratch/headlight.$shell'"
done
check "other shells are refused" fails tools/completion tcsh "$table"
check "a table without commands is refused" fails tools/completion bash /dev/null
check "bash reads its completion" bash -n "$scratch/headlight.bash"

# Prints what bash offers for the last of these words, sorted.
offered() { # word...
    bash -c '. "$1"; shift; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _headlight; printf "%s\n" "${COMPREPLY[@]}" | sort' \
        bash "$scratch/headlight.bash" "$@"
}
offers() { # "what" word...
    local wanted=$1 seen
    shift
    seen=$(offered "$@" | tr '\n' ' ')
    echo "offered: $seen" && [ "$seen" = "$wanted" ]
}
check "commands" offers "measure merge " headlight me
all_commands() {
    [ "$(offered headlight '' | grep -vx -e '--.*' -e help)" = \
        "$(awk -F '\t' '$1 == "command" { print $2 }' "$table" | sort)" ]
}
check "all of them" all_commands
all_options() {
    local command
    while read -r command; do
        offered headlight "$command" -- | grep '^--' >"$scratch/offered"
        awk -F '\t' -v c="$command" '$2 == c && $1 != "command" { print "--" $4 }' "$table" | sort |
            diff - "$scratch/offered" || return 1
    done < <(awk -F '\t' '$1 == "command" { print $2 }' "$table")
}
check "all options of every command" all_options
check "options" offers "--resume --rope-base --rope-factor --rows " headlight measure x --r
check "choices" offers "compact " headlight prune x --as c
check "choices by letter" offers "auto compact gguf masked " headlight prune x -a ''
check "choices after =" offers "dark light " headlight draw x --theme =
check "and a beginning" offers "dark " headlight draw x --theme = d
check "no files where a number is wanted" offers " " headlight measure --context ''
mkdir "$scratch/folder" && touch "$scratch/folder/a.profile" "$scratch/folder/b.profile"
check "files" offers "$scratch/folder/a.profile $scratch/folder/b.profile " headlight show "$scratch/folder/"
check "files of an option" offers "$scratch/folder/b.profile " headlight merge -o "$scratch/folder/b"
check "help has commands and metrics" offers "measure merge metrics " headlight help me

if command -v zsh >/dev/null; then
    check "zsh reads its completion" zsh -n "$scratch/headlight.zsh"
    offers_zsh() { # checks the words that _arguments gets
        zsh -fc '_describe() { :; }; _arguments() { print -rl -- "$@"; }
            words=(headlight prune --) CURRENT=3; source "$1"' zsh "$scratch/headlight.zsh" >"$scratch/seen"
        grep -qF -- '-a+[what to write (auto\: the form that saves memory)]:value:(auto compact masked gguf)' "$scratch/seen" &&
            grep -qF -- '--as=[what to write (auto\: the form that saves memory)]:value:(auto compact masked gguf)' "$scratch/seen"
    }
    check "and gets options with their choices from it" offers_zsh
fi
if command -v fish >/dev/null; then
    offers_fish() {
        HOME=$scratch XDG_CONFIG_HOME=$scratch fish --no-config -c \
            "source $scratch/headlight.fish; complete -C 'headlight prune x --as '" | cut -f 1 >"$scratch/seen"
        cat "$scratch/seen"
        [ "$(sort "$scratch/seen" | tr '\n' ' ')" = 'auto compact gguf masked ' ]
    }
    check "fish completes by its own" offers_fish
fi
finish
