#!/bin/bash
# notes.sh - context for a text, from a folder of notes.
#
#     headlight generate MODEL PROMPT --on-spike exec --exec 'examples/notes.sh FOLDER'
#
# headlight calls it where attention is suddenly diffuse and gives it
#     {"text":"... all of the text so far","tokens":57,"spike":{"z":3.4,"entity":true,"token":" Ed"}}
# What is printed is inserted there: the one line of the notes (FOLDER/*.txt, FOLDER/*.md) that has
# most of the text's last words in it, or nothing.
set -u
folder=${1:?usage: notes.sh FOLDER}

# The last twelve words of five letters or more; escapes of JSON are not letters.
words=$(sed -e 's/","tokens":.*//' -e 's/\\u[0-9a-f]\{4\}/ /g' -e 's/\\./ /g' |
    grep -oE '[[:alpha:]]{5,}' | tail -n 12 | tr '[:upper:]' '[:lower:]' | sort -u)
[ -n "$words" ] || exit 0

find "$folder" -maxdepth 1 -type f \( -name '*.txt' -o -name '*.md' \) -exec cat {} + |
    awk -v words="$words" '
        BEGIN { n = split(words, word, "\n") }
        {
            line = tolower($0)
            found = 0
            for (i = 1; i <= n; i++)
                found += index(line, word[i]) > 0
            if (found > most) {
                most = found
                best = $0
            }
        }
        END { if (most > 0) printf " (%s) ", best }'
