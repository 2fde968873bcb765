#!/usr/bin/env python3
"""make_judge_task.py - makes texts with known correct answers, for `headlight judge`.

    tools/make_judge_task.py FOLDER [--task list --task quote] [--texts 300] [--model models/demo]
    build/headlight judge FOLDER/*.trace FOLDER/labels.jsonl

The model continues each prompt with the most likely tokens.  Tasks are

    list      a list of random words, then the beginning of the same list; the words that follow are
              right.  In every second text some of the repeated words are replaced by others.
    quote     a sentence, other sentences, then the beginning of the first one again; its next words
              are right.
    recall    "The code of the lamp is 483." for some things; then one of them is asked for.
    sums      two solved sums, then one to solve.
    capitals  two countries with their capitals, then another country.

In `list` and `quote` each word is labeled up to the first wrong one, and no word after it, since none
would be right there.  The other tasks have one label per text, for the whole answer.  Words and
sentences come from models/text/alice.txt; the same seed gives the same texts.
"""
import argparse
import json
import pathlib
import random
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

BOOK = "models/text/alice.txt"
WORDS = 48       # list: number of words
LEAST = 12       # list: smallest number of repeated words
SHARE = 0.5      # list: share of the repeated words that are replaced in every second text
WRITTEN = 4      # list, quote: number of generated tokens
THINGS = ("lamp door book ring boat coin coat drum fork glove hat key map nail pen rope shoe spoon tent vase "
          "watch basket bell box brush cart chair clock cup desk flag").split()
CAPITALS = """
Afghanistan Kabul|Albania Tirana|Algeria Algiers|Andorra Andorra la Vella|Angola Luanda|Argentina Buenos Aires|
Armenia Yerevan|Australia Canberra|Austria Vienna|Azerbaijan Baku|Bahrain Manama|Bangladesh Dhaka|
Barbados Bridgetown|Belarus Minsk|Belgium Brussels|Belize Belmopan|Benin Porto-Novo|Bhutan Thimphu|
Bolivia Sucre|Botswana Gaborone|Brazil Brasília|Brunei Bandar Seri Begawan|Bulgaria Sofia|
Burkina-Faso Ouagadougou|Burundi Gitega|Cambodia Phnom Penh|Cameroon Yaoundé|Canada Ottawa|Chad N'Djamena|
Chile Santiago|China Beijing|Colombia Bogotá|Comoros Moroni|Croatia Zagreb|Cuba Havana|Cyprus Nicosia|
Denmark Copenhagen|Djibouti Djibouti|Ecuador Quito|Egypt Cairo|Eritrea Asmara|Estonia Tallinn|
Eswatini Mbabane|Ethiopia Addis Ababa|Fiji Suva|Finland Helsinki|France Paris|Gabon Libreville|Gambia Banjul|
Georgia Tbilisi|Germany Berlin|Ghana Accra|Greece Athens|Guatemala Guatemala City|Guinea Conakry|
Guyana Georgetown|Haiti Port-au-Prince|Honduras Tegucigalpa|Hungary Budapest|Iceland Reykjavik|
India New Delhi|Indonesia Jakarta|Iran Tehran|Iraq Baghdad|Ireland Dublin|Italy Rome|Jamaica Kingston|
Japan Tokyo|Jordan Amman|Kazakhstan Astana|Kenya Nairobi|Kuwait Kuwait City|Kyrgyzstan Bishkek|Laos Vientiane|
Latvia Riga|Lebanon Beirut|Lesotho Maseru|Liberia Monrovia|Libya Tripoli|Liechtenstein Vaduz|
Lithuania Vilnius|Luxembourg Luxembourg|Madagascar Antananarivo|Malawi Lilongwe|Malaysia Kuala Lumpur|
Maldives Malé|Mali Bamako|Malta Valletta|Mauritania Nouakchott|Mauritius Port Louis|Mexico Mexico City|
Moldova Chisinau|Mongolia Ulaanbaatar|Montenegro Podgorica|Morocco Rabat|Mozambique Maputo|Myanmar Naypyidaw|
Namibia Windhoek|Nepal Kathmandu|Netherlands Amsterdam|Nicaragua Managua|Niger Niamey|Nigeria Abuja|
Norway Oslo|Oman Muscat|Pakistan Islamabad|Panama Panama City|Paraguay Asunción|Peru Lima|Philippines Manila|
Poland Warsaw|Portugal Lisbon|Qatar Doha|Romania Bucharest|Russia Moscow|Rwanda Kigali|Samoa Apia|Senegal Dakar|
Serbia Belgrade|Seychelles Victoria|Singapore Singapore|Slovakia Bratislava|Slovenia Ljubljana|
Somalia Mogadishu|Spain Madrid|Sudan Khartoum|Suriname Paramaribo|Sweden Stockholm|Switzerland Bern|
Syria Damascus|Tajikistan Dushanbe|Tanzania Dodoma|Thailand Bangkok|Togo Lomé|Tonga Nuku'alofa|Tunisia Tunis|
Turkey Ankara|Turkmenistan Ashgabat|Tuvalu Funafuti|Uganda Kampala|Ukraine Kyiv|Uruguay Montevideo|
Uzbekistan Tashkent|Vanuatu Port Vila|Venezuela Caracas|Vietnam Hanoi|Yemen Sanaa|Zambia Lusaka|Zimbabwe Harare
"""


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--task", action="append", choices=list(TASKS), help="list and quote by default")
    parser.add_argument("--texts", type=int, default=300, help="number of texts of each task")
    parser.add_argument("--model", default="models/demo")
    parser.add_argument("--headlight", default="build/headlight")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def run(command, text=None):
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return done.stdout


def read_book():
    return pathlib.Path(BOOK).read_text(encoding="utf-8")


def find_words(options):
    """Words that are one token each, with the space before them."""
    words = sorted(set(re.findall(r"\b[a-z]{3,9}\b", read_book())))
    lines = "".join(json.dumps(" " + word) + "\n" for word in words)
    ids = run([options.headlight, "tokenize", options.model, "--json"], lines).splitlines()
    return [word for word, line in zip(words, ids) if len(json.loads(line)) == 1]


# Each task makes (prompt, the words that should follow, number of tokens to generate).  `wanted` of
# one word is an answer; a longer one is labeled word by word.

def make_lists(options, draw):
    words = find_words(options)
    for i in range(options.texts):
        chosen = draw.sample(words, 2 * WORDS)
        listed, others = chosen[:WORDS], chosen[WORDS:]
        n_begun = draw.randrange(LEAST, WORDS - WRITTEN)
        begun = listed[:n_begun]
        for k in range(n_begun):
            if i % 2 == 1 and draw.random() < SHARE:
                begun[k] = others[k]
        yield "".join(" " + word for word in listed + begun), listed[n_begun:], WRITTEN


def make_quotes(options, draw):
    text = re.sub(r"[^A-Za-z.,;'’ ]+", " ", read_book().replace("\n", " "))
    sentences = [" ".join(s.split()) for s in re.split(r"(?<=\.)\s", text)]
    sentences = [s for s in sentences if 12 <= len(s.split()) <= 30]
    for _ in range(options.texts):
        chosen = draw.sample(sentences, draw.randrange(2, 8))
        words = chosen[0].split()
        begun = draw.randrange(2, len(words) - WRITTEN)
        yield " " + " ".join(chosen + words[:begun]), words[begun:], WRITTEN


def make_recalls(options, draw):
    for _ in range(options.texts):
        things = draw.sample(THINGS, draw.randrange(2, 9))
        codes = [str(draw.randrange(100, 1000)) for _ in things]
        asked = draw.randrange(len(things))
        told = "".join(f"The code of the {a} is {b}. " for a, b in zip(things, codes))
        yield told + f"The code of the {things[asked]} is", [codes[asked]], 5


def make_sums(options, draw):
    for _ in range(options.texts):
        top = draw.choice((10, 30, 100, 300, 1000))
        pairs = [(draw.randrange(1, top), draw.randrange(1, top)) for _ in range(3)]
        told = "; ".join(f"{a} + {b} = {a + b}" for a, b in pairs[:2])
        yield told + f"; {pairs[2][0]} + {pairs[2][1]} =", [str(sum(pairs[2]))], 7


def make_capitals(options, draw):
    known = [item.strip().split(" ", 1) for item in CAPITALS.replace("\n", "").split("|")]
    for country, city in draw.sample(known, min(options.texts, len(known))):
        shown = draw.sample([pair for pair in known if pair[0] != country], 2)
        told = "".join(f"The capital of {a.replace('-', ' ')} is {b}. " for a, b in shown)
        yield told + f"The capital of {country.replace('-', ' ')} is", [city], 8


TASKS = {"list": make_lists, "quote": make_quotes, "recall": make_recalls, "sums": make_sums,
         "capitals": make_capitals}


def label_words(text, wanted, begin):
    """One label for every word up to the first wrong one; a last word may be cut off."""
    found = list(re.finditer(r"\s*\S+", text))
    for match, word in zip(found, wanted):
        right = match.group() == " " + word
        if match is found[-1] and not right and (" " + word).startswith(match.group()):
            return
        yield [begin + match.start(), begin + match.end()], right
        if not right:
            return


def label_answer(text, wanted, begin):
    """One label for the answer, which ends at the first mark or line end."""
    match = re.match(r"\s*[^\s.;,\n]*(?: [A-Z][^\s.;,\n]*)*", text)
    if match.group().strip():
        yield [begin, begin + match.end()], match.group().strip() == wanted


def trace_text(options, task, i, made):
    prompt, wanted, n_tokens = made
    path = options.folder / f"{task}{i:03d}.trace"
    written = run([options.headlight, "generate", options.model, prompt, "--json", "--raw", "--ignore-end",
                   "--max-tokens", str(n_tokens), "--threads", "1", "--trace", str(path)])
    text = json.loads(written)["text"]
    labels = label_words(text, wanted, len(prompt)) if len(wanted) > 1 else label_answer(text, wanted[0], len(prompt))
    return [{"trace": path.name, "task": task, "characters": span, "right": right} for span, right in labels]


def main():
    options = parse()
    options.folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for task in options.task or ["list", "quote"]:
        texts = list(TASKS[task](options, random.Random(f"{options.seed} {task}")))
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(lambda item, t=task: trace_text(options, t, *item), enumerate(texts)))
        labels = [line for one in found for line in one]
        n_right = sum(line["right"] for line in labels)
        print(f"{task}: {len(texts)} texts, {n_right} right and {len(labels) - n_right} wrong")
        lines += labels
    with open(options.folder / "labels.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


if __name__ == "__main__":
    main()
