#!/bin/bash
# tokenize.sh - headlight tokenize: tables, JSON, lines in and out, and invalid input.
set -u
# shellcheck source=tests/cli/lib.bash
. "$(dirname "$0")/lib.bash"
plan 39

small=tests/data/tokenizers
run_with() { # input argument...
    printf '%b' "$1" >"$scratch/in"
    "$HEADLIGHT" "${@:2}" >"$scratch/out" 2>"$scratch/err" <"$scratch/in"
    status=$?
}

run tokenize "$small/small-bpe" $'Hello wörld!\n<|endoftext|>'
expect "a text is a line and a table" 0 <<'END'
11 tokens, 27 bytes (BPE, 1024 pieces)

H│ell│o│·w│ö││r│ld│!│↵
│<|endoftext|>

   #      id  bytes      piece          text
   0      40  0-1        H              H
   1     577  1-4        ell            ell
   2      79  4-5        o              o
   3     262  5-7        Ġw             ·w
   4     128  7-9        Ã              ö
   5     115  7-9        ¶              ö
   6      82  9-10       r              r
   7     307  10-12      ld             ld
   8       1  12-13      !              !
   9     199  13-14      Ċ              ↵
  10       0  14-27      <|endoftext|>  <|endoftext|>  (special)
END
cp "$scratch/out" "$scratch/table"

run tokenize "$small/small-bpe/tokenizer.json" $'Hello wörld!\n<|endoftext|>'
expect "the file is as good as its folder" 0 <"$scratch/table"
run_with 'Hello wörld!\n<|endoftext|>' tokenize "$small/small-bpe"
expect "without TEXT it comes from standard input" 0 <"$scratch/table"
run tokenize nowhere --tokenizer "$small/small-bpe" $'Hello wörld!\n<|endoftext|>'
expect "--tokenizer takes another" 0 <"$scratch/table"

run tokenize --special "$small/small-wordpiece" 'Hello 世 zq'
expect "special tokens, and what is unknown" 0 <<'END'
8 tokens, 12 bytes (WordPiece, 1200 pieces)

[CLS]│Hel│l│o│世│z│q│[SEP]

   #      id  bytes      piece  text
   0       2  -          [CLS]  (special)
   1     791  0-3        hel    Hel
   2      84  3-4        ##l    l
   3      70  4-5        ##o    o
   4       1  6-9        [UNK]  世  (unknown)
   5      58  10-11      z      z
   6      96  11-12      ##q    q
   7       3  -          [SEP]  (special)
END

run tokenize "$small/small-unigram" ''
expect "no text, no tokens" 0 <<'END'
0 tokens, 0 bytes (Unigram, 1200 pieces)
END

run tokenize "$small/small-bpe" $'a\xc2\x9b31mb' # some terminals take U+009B for ESC [
result "no control character of eight bits is printed" \
    "$(! LC_ALL=C grep -qP '\xc2[\x80-\x9f]' "$scratch/out" && [ "$status" -eq 0 ] && echo yes)"

run tokenize "$small/small-bpe" $'\e[31m\x7f\xff'
expect "nothing in the text can move the cursor" 0 <<'END'
7 tokens, 7 bytes (BPE, 1024 pieces)

\x1b│[│3│1│m│\x7f│�

   #      id  bytes      piece  text
   0     216  0-1        ě      \x1b
   1      59  1-2        [      [
   2      19  2-3        3      3
   3      17  3-4        1      1
   4      77  4-5        m      m
   5     222  5-6        ġ      \x7f
   6     188  6-7        ÿ      �
END

run tokenize --quiet "$small/small-bpe" hello
expect "--quiet says nothing" 0 </dev/null

run tokenize --json "$small/small-unigram" 'no ☃'
expect "--json is one object" 0 <<'END'
{"ids": [82, 4, 0], "pieces": ["▁no", "▁", "<unk>"], "offsets": [[0, 2], [2, 3], [3, 6]]}
END
run tokenize --json --special "$small/small-wordpiece" 'Héllo'
expect "--json with special tokens" 0 <<'END'
{"ids": [2, 791, 84, 70, 3], "pieces": ["[CLS]", "hel", "##l", "##o", "[SEP]"], "offsets": [[0, 0], [0, 4], [4, 5], [5, 6], [0, 0]]}
END
run tokenize --json --plain "$small/small-wordpiece" '[CLS]'
expect_line "--plain: special tokens are text" 0 '"pieces": \["\[", "cl", "##s", "\]"\]'
run tokenize --json "$small/small-unigram" ''
expect "--json of nothing" 0 <<'END'
{"ids": [], "pieces": [], "offsets": []}
END

run_with '"Hello"\n""\n"a\\u0000b"\n"\\u00e9"\n' tokenize --json "$small/small-bpe"
expect "a string a line, an array a line" 0 <<'END'
[40, 577, 79]
[]
[65, 189, 66]
[128, 103]
END
run_with '"Hello"' tokenize --json --special "$small/small-wordpiece"
expect "the last line need not end" 0 <<'END'
[2, 791, 84, 70, 3]
END
run_with '[40, 577, 79]\n[]\n[65,189,66]\n[128]\n[0]\n' tokenize --json --decode "$small/small-bpe"
expect "--decode: an array a line, a string a line" 0 <<'END'
"Hello"
""
"a\u0000b"
"�"
"<|endoftext|>"
END
run tokenize --json --decode "$small/small-bpe" '[40, 577, 79]'
expect "--decode of an argument" 0 <<'END'
"Hello"
END
run_with '[40, 577, 79]\n' tokenize -d "$small/small-bpe"
expect "--decode without --json is text" 0 <<'END'
Hello
END
run tokenize --json "$small/small-bpe" </dev/null
expect "no lines, no answers" 0 </dev/null

run_with '"a"\nnope\n"b"\n' tokenize --json "$small/small-bpe"
expect "a line that is not JSON" 3 <<'END'
[65]
headlight tokenize: line 2: JSON line 1, column 1: not a value
END
run_with '"a"\n[1]\n' tokenize --json "$small/small-bpe"
expect "a line that is not a string" 3 <<'END'
[65]
headlight tokenize: line 2: not a JSON string
END
run_with '\n' tokenize --json "$small/small-bpe"
expect_line "an empty line" 3 '^headlight tokenize: line 1: JSON line 2, column 1: '
run_with '"a\xff"\n' tokenize --json "$small/small-bpe"
expect_line "a line that is not UTF-8" 3 '^headlight tokenize: line 1: JSON line 1, column 3: not UTF-8: byte 0xff'
run_with '"x"\n' tokenize --json --decode "$small/small-bpe"
expect "not an array" 3 <<'END'
headlight tokenize: line 1: not an array of ids
END
run_with '[1]\n[1, -1]\n' tokenize --json --decode "$small/small-bpe"
expect "not an id" 3 <<'END'
"!"
headlight tokenize: line 2: not an array of ids
END
run_with '[1, 5000]\n' tokenize --json --decode "$small/small-bpe"
expect "an id without a piece" 3 <<'END'
headlight tokenize: line 1: tests/data/tokenizers/small-bpe/tokenizer.json: token 1: the vocabulary has no id 5000
END

run tokenize
expect "no model" 2 <<'END'
headlight tokenize: no MODEL given
Try 'headlight tokenize --help'.
END
run tokenize "$small/small-bpe" two words
expect "two texts" 2 <<'END'
headlight tokenize: give one TEXT; got 2 arguments (quote a text that has spaces)
Try 'headlight tokenize --help'.
END
run tokenize "$small" text
expect "a folder without a tokenizer" 3 <<END
headlight tokenize: $small/: no tokenizer.json in this folder
END
run tokenize models/demo/model.safetensors text
expect_line "the weights lead to their folder" 0 ' tokens?, 4 bytes \(BPE, 4096 pieces\)$'
run tokenize models/nowhere.safetensors text
expect_line "which may have none" 3 '^headlight tokenize: models/: no tokenizer.json in this folder$'
run tokenize nowhere.json text
expect "no such file" 3 <<'END'
headlight tokenize: nowhere.json: No such file or directory
END
printf '{"model": {"type": "BPE", "vocab": {"a": 0,\n"b": 0}, "merges": []}}' >"$scratch/bad.json"
run tokenize "$scratch/bad.json" text
expect "a file that contradicts itself" 3 <<END
headlight tokenize: $scratch/bad.json: vocab: id 0 is given to 'a' and to 'b'
END
printf '{"model": {"type": "BPE"\n' >"$scratch/cut.json"
run tokenize "$scratch/cut.json" text
expect "a file that ends too early" 3 <<END
headlight tokenize: $scratch/cut.json: JSON line 2, column 1: the text ends where ',' should be
END
run tokenize tests/data/gguf/llama3.gguf text
expect_line "a GGUF file has its tokenizer inside" 0 ' tokens?, 4 bytes \(BPE, '

# A chat: the template is run, and tokens know the message that they come from.
cp -r "$small/small-bpe" "$scratch/chat"
echo '{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ tools }}' >"$scratch/chat/chat_template.jinja"
run tokenize "$scratch/chat" --chat --json '{"messages": [{"role": "user", "content": "Hi"}], "tools": [1]}'
expect_line "--chat renders messages" 0 '"text": "<user>Hi\[1\]"'
run tokenize "$scratch/chat" --chat '[{"role": "tool", "content": "Hi"}]'
expect_line "tokens have roles" 0 ' \[tool\]$'
echo '{{ 1 / 0 }}' >"$scratch/chat/chat_template.jinja"
run tokenize "$scratch/chat" --chat '[]'
expect_line "a template that fails" 3 'chat template, line 1: ZeroDivisionError: division by zero$'

if have_terminal; then
    TERM=xterm script -qec "$HEADLIGHT tokenize $small/small-bpe 'Hi you'" /dev/null >"$scratch/out" 2>/dev/null </dev/null
    status=$?
    : >"$scratch/err"
    expect_line "colors take turns on a terminal" 0 '48;5;153m.*48;5;222m.*48;5;153m'
else
    skipped "colors take turns on a terminal" "no script(1), or no terminal for it"
fi
finish
