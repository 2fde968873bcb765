#!/usr/bin/env python3
"""Writes cases.json: small templates and what Jinja2 makes of them.

    python3 tests/data/templates/make.py > tests/data/templates/cases.json

The environment is the one that transformers builds for chat templates.  A case is
{"template", "text"} or {"template", "error"}.  All cases see the same variables.  The templates
were written for this project; test_jinja.c compares every result to the byte.
"""
import datetime
import json
import sys

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2026, 7, 14, 9, 30)

VARIABLES = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "  Hi <b>& \"you\"</b>\n\nthere  "},
        {"role": "assistant", "content": None,
         "tool_calls": [{"id": "a1", "function": {"name": "f", "arguments": {"x": 1.5, "ü": [True, None]}}}]},
        {"role": "tool", "content": "{\"ok\": true}", "name": "f"},
        {"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "image"}]},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "description": "it's \\ \"fine\"",
               "parameters": {"type": "object", "properties": {"x": {"type": "number"}, "a": {"type": "string"}}}}}],
    "n": 7, "z": 0, "neg": -3, "pi": 3.14159, "big": 1e20, "tiny": 1.5e-7, "half": 0.5,
    "s": "Hello, Wörld", "empty": "", "blank": " \t\n x \u00a0", "t": True, "f": False, "none": None,
    "l": [3, 1, 2], "ll": [[1, 2], [3], []], "words": ["b", "A", "c", "a"], "d": {"b": 1, "a": 2, "C": 3},
    "people": [{"name": "Zoe", "age": 30, "tags": ["x"]}, {"name": "adam", "age": 25, "tags": []},
               {"name": "Bob", "age": 30, "tags": ["y", "z"]}],
    "nested": {"items": [1], "keys": 2, "a": {"b": {"c": "deep"}}},
    "emoji": "a🙂b", "sharp": "straße ΣΑΣ ǆ", "lines": "one\ntwo\r\nthree\n\nfive", "html": "<a href='x'>&amp;</a>",
    "long": "the quick brown fox jumps over the lazy dog again and again until it is tired",
}

TEMPLATES = r"""
plain text
{{ s }}
{{ n }} {{ neg }} {{ pi }} {{ big }} {{ tiny }} {{ half }} {{ t }} {{ f }} {{ none }} {{ missing }}
{{ 1 + 2 * 3 - 4 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }}
{{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 7.5 % -2 }} {{ 1e3 }} {{ 1.0 }} {{ 100000000000000000.0 }} {{ 1e16 }} {{ 123456789.125 }} {{ 0.1 + 0.2 }} {{ 1e-5 }} {{ 0.0001 }}
{{ 1_000 }} {{ 0x1f }} {{ 0b101 }} {{ 0o17 }} {{ 1_0.5_0 }} {{ 1E5 }}
{{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' == 'a' }} {{ [1] == [1.0] }} {{ {'a': 1} == {'a': 1} }} {{ (1, 2) == [1, 2] }} {{ none == false }}
{{ 1 < 2 }} {{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ 'Z' < 'a' }} {{ [1, 2] < [1, 3] }} {{ (1,) < (1, 0) }} {{ 2 >= 2.0 }} {{ 1 != 2 }}
{{ 'a' < 1 }}
{{ 1 < 'a' }}
{{ 1 <= 'a' }}
{{ 1 > 'a' }}
{{ none >= 1 }}
{{ [] < {} }}
{{ missing < 1 }}
{{ 'b' in 'abc' }} {{ 1 in [1, 2] }} {{ 'a' in d }} {{ 'x' not in d }} {{ 5 in range(10) }} {{ '' in 'abc' }}
{{ 1 in 'abc' }}
{{ 1 in 5 }}
{{ 'x' in missing }}
{{ [1] in d }}
{{ t and 'yes' }} {{ f and 'no' }} {{ '' or 'other' }} {{ not t }} {{ not '' }} {{ t and f or n }} {{ not f and not f }}
{{ 'a' if t else 'b' }} {{ 'a' if f else 'b' }} [{{ 'a' if f }}] {{ 'x' if f else 'y' if f else 'z' }}
{{ ('a' if f).x }}
{{ 'a' ~ 1 ~ none ~ missing ~ 1.5 ~ [1, 'b'] }}
{{ 'a' + 'b' }} {{ 'ab' * 3 }} {{ 3 * 'ab' }} {{ [1] + [2] }} {{ [1, 2] * 2 }} {{ (1,) + (2,) }} {{ 'x' * -1 }}
{{ 'a' + 1 }}
{{ 1 + 'a' }}
{{ [1] + 'a' }}
{{ [1] + (2,) }}
{{ none + 1 }}
{{ 'a' + none }}
{{ 'a' + missing }}
{{ missing + 'a' }}
{{ messages[0].missing + 'a' }}
{{ messages[0]['missing'] + 'a' }}
{{ {} + {} }}
{{ 'a' - 'b' }}
{{ 'a' * 'b' }}
{{ 'a' / 2 }}
{{ [] ** 2 }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1 % 0 }}
{{ 1.5 / 0 }}
{{ 1.5 // 0 }}
{{ 1.5 % 0 }}
{{ -n }} {{ +n }} {{ - -n }} {{ -pi }} {{ -t }} {{ +f }}
{{ -'a' }}
{{ -missing }}
{{ -n|abs }} {{ (-n)|abs }} {{ neg|abs }} {{ -3.5|abs }}
{{ [1, 'two', 3.0, none, true, [4], {'k': 'v'}, (5,), ()] }}
{{ {'a': 1, 'b': [2], 3: none, none: 4, true: 5, 1.5: 'x'} }}
{{ "it's" }} {{ ["it's", 'say "hi"', 'both \' and "', 'tab\t nl\n bs\\ nul\x01 é 🙂 \u200b \xa0'] }}
{{ 'a' 'b' "c" }} {{ 'esc: \x41 \u00e9 \101 \q' }}
{{ (1, 2, 3) }} {{ 1, 2 }} {{ (1) }} {{ () }} {{ (1,) }} {{ [] }} {{ {} }}
{{ l[0] }} {{ l[-1] }} [{{ l[5] }}] {{ l[1:] }} {{ l[:2] }} {{ l[::-1] }} {{ l[::2] }} {{ l[-2:] }} {{ l[10:] }} {{ l[1:1] }}
{{ s[0] }} {{ s[-1] }} {{ s[7:] }} {{ s[::-1] }} {{ s[1:8:2] }} {{ s[-5:-1] }} {{ s[100:] }} {{ s[:0] }} {{ emoji[1] }} {{ emoji[::-1] }} {{ emoji|length }}
{{ l[::0] }}
{{ l['a'] }}|{{ s['x'] }}|{{ none.x }}|{{ n.x }}|{{ d.zzz }}|{{ d['b'] }}|{{ d.b }}
{{ l['a'].b }}
{{ none.x.y }}
{{ none['x'] + 1 }}
{{ n.foo.bar }}
{{ l[7].x }}
{{ d[1].x }}
{{ missing.x }}
{{ missing['x'] }}
{{ missing[0] }}
{{ missing() }}
{{ 'abc'() }}
{{ n() }}
{{ d.zzz() }}
{{ messages[0].content }} {{ messages[0]['role'] }} {{ messages[-1].content[0].text }} {{ messages.0.content }}
{{ nested['items'] }} {{ nested['keys'] }} {{ nested.a.b.c }} {{ nested['a']['b']['c'] }}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for v in d.values() %}{{ v }}{% endfor %}{{ d.keys()|list }}
{{ d.get('b') }} {{ d.get('x') }} {{ d.get('x', 5) }} {{ d.items() }} {{ d.keys() }} {{ d.values() }} {{ d.copy() }}
{{ d.pop('a') }}
{{ l.append(1) }}
{{ d.update({}) }}
{{ d.setdefault('a', 1) }}
{{ l.append is defined }} {{ l.foo is defined }}
{{ s.__class__ }}|{{ s.__class__ is defined }}
{{ s.__class__.__mro__ }}
{{ ''.__class__ + 'x' }}
{{ s.upper() }} {{ s.lower() }} {{ s.title() }} {{ s.capitalize() }} {{ s.swapcase() }} {{ sharp.upper() }} {{ sharp.lower() }} {{ sharp.title() }} {{ sharp.capitalize() }}
[{{ blank.strip() }}] [{{ blank.lstrip() }}] [{{ blank.rstrip() }}] [{{ 'xxaxx'.strip('x') }}] [{{ 'xyaxy'.lstrip('yx') }}] [{{ 'abc'.rstrip('cb') }}]
{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a b c'.split(' ', 1) }} {{ 'a b c'.rsplit(' ', 1) }} {{ ' a b  c '.rsplit(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'abc'.split('x') }} {{ ' a b '.split(none, 1) }}
{{ 'a'.split('') }}
{{ lines.splitlines() }} {{ lines.splitlines(true) }} {{ ''.splitlines() }}
{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x', 'c')) }} {{ 'abc'.startswith('b', 1) }} {{ 'abc'.startswith('') }}
{{ 'abc'.startswith(1) }}
{{ 'abcabc'.find('c') }} {{ 'abcabc'.rfind('c') }} {{ 'abc'.find('x') }} {{ 'abcabc'.index('b', 2) }} {{ 'aXbXc'.count('X') }} {{ 'aaa'.count('') }} {{ 'ünï'.find('ï') }}
{{ 'abc'.index('x') }}
{{ 'aXbXc'.replace('X', '-') }} {{ 'aXbXc'.replace('X', '-', 1) }} {{ 'abc'.replace('', '-') }} {{ 'abc'.replace('b', '') }}
{{ 'abc'.replace('a', 1) }}
{{ '-'.join(['a', 'b']) }} {{ ''.join('abc') }} {{ ', '.join(d) }}
{{ ''.join([1]) }}
{{ 'a-b-c'.partition('-') }} {{ 'a-b-c'.rpartition('-') }} {{ 'abc'.partition('x') }} {{ 'abc'.rpartition('x') }}
{{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.py'.removesuffix('.py') }} {{ 'x'.removesuffix('') }}
[{{ 'ab'.center(7) }}] [{{ 'abc'.center(6, '*') }}] [{{ 'ab'.ljust(5, '.') }}] [{{ 'ab'.rjust(5) }}] {{ '-7'.zfill(5) }} {{ '7'.zfill(3) }} [{{ 'a\tb'.expandtabs(4) }}]
{{ 'abc'.isalpha() }} {{ 'a1'.isalnum() }} {{ '12'.isdigit() }} {{ ''.isdigit() }} {{ ' '.isspace() }} {{ 'AB'.isupper() }} {{ 'aB'.islower() }} {{ 'Ab Cd'.istitle() }} {{ '1.5'.isnumeric() }} {{ 'a_1'.isidentifier() }} {{ '²'.isdigit() }} {{ '²'.isdecimal() }} {{ 'é'.isascii() }}
{{ '{} and {}'.format(1, 'x') }} {{ '{1}{0}'.format('a', 'b') }} {{ '{x!r:>6}'.format(x='q') }} {{ '{:.2f}|{:5d}|{:<5}|{:^7}|{:+d}|{:,}'.format(pi, 42, 'ab', 'mid', 5, 1234567) }}
{{ '{0.a[b]} {{}}'.format({'a': {'b': 'c'}}) }} {{ '{:{}}|'.format('a', 5) }} {{ '{:x} {:#b} {:o} {:e} {:%} {:05.1f} {:g}'.format(255, 5, 8, 12345.678, 0.25, 2.55, 1e10) }}
{{ '{}'.format() }}
{{ '{a}'.format(b=1) }}
{{ '{'.format(1) }}
{{ '}'.format(1) }}
{{ '{:d}'.format('a') }}
{{ '%s %d %5.1f %r %x %%' % ('a', 3, 2.25, 'q', 255) }} {{ '%(k)s-%(k)05d' % {'k': 7} }} {{ '%s' % 'x' }} {{ '%-5s|%5s|' % ('a', 'b') }} {{ '%+d % d' % (3, 4) }} {{ '%s' % [1, 2] }} {{ '%c%c' % (65, 'b') }} {{ '%.3s' % 'abcdef' }} {{ '%03d|%.3d' % (7, 7) }} {{ '%e|%g' % (12345.6789, 0.0001) }}
{{ '%d' % 'a' }}
{{ '%s %s' % 'a' }}
{{ 'x' % 'a' }}
{{ '%q' % 1 }}
{{ '%s'|format('x') }} {{ '%s-%s'|format(1, 2) }} {{ '%(a)s'|format(a=1) }}
{{ s|upper }} {{ s|lower }} {{ s|title }} {{ s|capitalize }} {{ 'foo-bar (baz) [x] it\'s o\'neil'|title }} {{ 5|upper }} {{ none|lower }}
[{{ blank|trim }}] [{{ 'xxaxx'|trim('x') }}] [{{ missing|trim }}] [{{ 5|trim }}]
{{ l|length }} {{ s|length }} {{ d|length }} {{ missing|length }} {{ l|count }} {{ range(5)|length }}
{{ 5|length }}
{{ none|length }}
{{ l|join }} {{ l|join(', ') }} {{ people|join(', ', attribute='name') }} {{ [1, none, 'x']|join('-') }} {{ 'abc'|join('.') }} {{ d|join(',') }}
{{ 5|join }}
{{ l|first }} {{ l|last }} {{ s|first }} {{ s|last }} {{ d|first }} {{ d|last }} [{{ []|first }}] [{{ ''|last }}]
{{ ([]|first).x }}
{{ none|first }}
{{ l|sort }} {{ words|sort }} {{ words|sort(case_sensitive=true) }} {{ l|sort(reverse=true) }} {{ people|sort(attribute='age')|map(attribute='name')|list }} {{ people|sort(attribute='age,name')|map(attribute='name')|join(' ') }} {{ people|sort(true, attribute='name')|map(attribute='name')|list }}
{{ [1, 'a']|sort }}
{{ l|reverse|list }} {{ s|reverse }} {{ l|map('string')|list }} {{ words|map('upper')|join }} {{ people|map(attribute='name')|list }} {{ people|map(attribute='x', default='?')|list }} {{ ll|map('length')|list }} {{ ll|map('first')|list }} {{ people|map(attribute='tags.0')|list }} {{ words|map('replace', 'a', 'z')|list }}
{{ l|map('nope')|list }}
{{ l|select('odd')|list }} {{ l|reject('odd')|list }} {{ [0, 1, '', 'a']|select|list }} {{ l|select('>', 1)|list }} {{ people|selectattr('age', 'equalto', 30)|map(attribute='name')|list }} {{ people|rejectattr('tags')|map(attribute='name')|list }} {{ people|selectattr('tags')|list|length }} {{ l|select('in', [1, 2])|list }} {{ messages|selectattr('role', '==', 'user')|list|length }}
{{ l|select('nope')|list }}
{{ d|dictsort }} {{ d|dictsort(true) }} {{ d|dictsort(by='value') }} {{ d|dictsort(reverse=true) }} {{ d|items|list }} {{ missing|items|list }}
{{ d|dictsort(by='x') }}
{{ l|items|list }}
{{ l|dictsort }}
{{ [1, 2, 1, 'a', 'A']|unique|list }} {{ ['a', 'A']|unique(true)|list }} {{ people|unique(attribute='age')|map(attribute='name')|list }} {{ l|sum }} {{ people|sum(attribute='age') }} {{ [1.5, 2]|sum(start=1) }} {{ l|min }} {{ l|max }} {{ words|min }} {{ words|max(case_sensitive=true) }} {{ (people|max(attribute='age')).name }} [{{ []|min }}]
{{ ['a']|sum }}
{{ [1, 'a']|max }}
{{ range(7)|batch(3)|list }} {{ range(7)|batch(3, '-')|list }} {{ range(7)|slice(3)|list }} {{ range(7)|slice(3, '-')|list }}
{% for g in people|groupby('age') %}{{ g.grouper }}:{{ g.list|map(attribute='name')|join(',') }};{% endfor %}{% for a, b in people|groupby('age') %}{{ a }}{{ b|length }}{% endfor %}{{ (people|groupby('age'))[0][0] }}
{{ 42.55|round }} {{ 42.55|round(1) }} {{ 2.5|round }} {{ 3.5|round }} {{ 42|round }} {{ 42.55|round(1, 'floor') }} {{ 42.51|round(method='ceil') }} {{ -2.5|round }} {{ 2.675|round(2) }} {{ 1234|round(-2) }} {{ 1e20|round(2) }}
{{ 1.5|round(1, 'x') }}
{{ 'a'|round }}
{{ '42'|int }} {{ '42.9'|int }} {{ 'x'|int }} {{ 'x'|int(5) }} {{ 42.9|int }} {{ ' 7 '|int }} {{ '0x1f'|int(base=16) }} {{ 'ff'|int(0, 16) }} {{ none|int }} {{ true|int }} {{ '1_000'|int }} {{ '-5'|int }} {{ [1]|int(9) }} {{ '1e3'|int }}
{{ '4.5'|float }} {{ 'x'|float }} {{ 'x'|float(1.0) }} {{ 4|float }} {{ '1e3'|float }} {{ 'inf'|float }} {{ 'nan'|float }} {{ ' 1.5 '|float }} {{ none|float(2) }}
{{ missing|int }}
{{ missing|float }}
{{ 5|string }} {{ none|string }} {{ [1, 'a']|string }} {{ 5|string|length }} {{ 'abc'|list }} {{ d|list }} {{ (1, 2)|list }} {{ missing|list }}
{{ 5|list }}
{{ none|list }}
{{ missing|default('x') }} {{ none|default('x') }} {{ none|default('x', true) }} {{ ''|default('x', boolean=true) }} {{ missing|d('y') }} [{{ missing|default }}] {{ d.q|default(5) }} {{ f|default('x', true) }}
{{ html|escape }} {{ html|e }} {{ html|safe }} {{ html|escape|escape }} {{ html|forceescape }} {{ '<'|safe|escape }} {{ html|striptags }} {{ ('<a>'|safe) + '<b>' }} {{ '<b>' + ('<a>'|safe) }} {{ ('<a>'|safe) ~ '<b>' }} {{ ['<'|e, '<']|join }} {{ ('<a>'|safe)|upper }} {{ 'x'|safe|string }} {{ ['a'|safe] }}
{{ ('a'|safe) + 1 }}
{{ long|truncate(20) }} {{ long|truncate(20, true) }} {{ long|truncate(20, false, '…') }} {{ 'short'|truncate(3) }} {{ 'abcdefghij'|truncate(5, true, '', 0) }} {{ long|truncate(20, leeway=0) }}
{{ long|wordwrap(20) }}
{{ long|wordwrap(10, false, '|') }} {{ 'abcdefghijkl mno'|wordwrap(5, true, '/') }} {{ 'abcdefghijkl mno'|wordwrap(5, false, '/') }} {{ 'a\n\nb c'|wordwrap(3, wrapstring='/') }}
{{ long|wordcount }} {{ 'it is a-b_c'|wordcount }}
{{ 'a\nb\n\nc'|indent }}
{{ 'a\nb\n\nc'|indent(2, true) }}
{{ 'a\nb\n\nc'|indent('> ', blank=true) }}|{{ 'a\n'|indent }}|{{ ''|indent }}|{{ 'a\nb'|indent(first=true, width=1) }}
{{ 5|indent }}
{{ s|replace('l', 'L') }} {{ s|replace('l', 'L', 1) }} {{ 123|replace(2, 'x') }} {{ s|center(20) }}| {{ 'a b&c/d?'|urlencode }} {{ {'a b': 'c&d', 'x': 1}|urlencode }} {{ {'class': 'x y', 'id': none, 'n': 5, 'q': '"<'}|xmlattr }} {{ {'a': 1}|xmlattr(false) }}
{{ 100|filesizeformat }} {{ 1|filesizeformat }} {{ 1500|filesizeformat }} {{ 1234567|filesizeformat }} {{ 1500|filesizeformat(true) }} {{ 1e30|filesizeformat }}
{{ d|attr('b') }}|{{ s|attr('upper') is callable }}|{{ (s|attr('upper'))() }}
{{ d|tojson }} {{ messages|tojson }}
{{ tools|tojson(indent=2) }}
{{ tools|tojson(indent=4, sort_keys=true) }}
{{ [1, 'ü', '🙂', none, true, 1.0, 1e20, 1e-7, '<&>\'"', '\x7f\x01\n\t'] | tojson }} {{ 'ü🙂\x7f'|tojson(ensure_ascii=true) }} {{ [1, {'a': []}]|tojson(separators=(',', ':')) }} {{ {}|tojson(indent=2) }} {{ []|tojson(indent=2) }} {{ [1, [2]]|tojson(indent=0) }} {{ [1]|tojson(indent='--') }} {{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }} {{ (1, 2)|tojson }} {{ 'x'|safe|tojson }} {{ [1, 2]|tojson(indent=1, separators=(';', '=')) }}
{{ missing|tojson }}
{{ [missing]|tojson }}
{{ l|map('string')|tojson }}
{{ {(1, 2): 3}|tojson }}
{{ d.items()|tojson }}
{{ range(3)|tojson }}
{{ s is string }} {{ n is number }} {{ n is integer }} {{ pi is float }} {{ t is boolean }} {{ t is true }} {{ f is false }} {{ none is none }} {{ d is mapping }} {{ l is sequence }} {{ s is sequence }} {{ d is sequence }} {{ l is iterable }} {{ n is iterable }} {{ n is odd }} {{ n is even }} {{ 9 is divisibleby 3 }} {{ missing is defined }} {{ missing is undefined }} {{ 'abc' is lower }} {{ 'ABC' is upper }} {{ t is number }} {{ t is integer }} {{ n is sameas 7 }} {{ none is sameas none }} {{ 'a' is in 'abc' }} {{ 3 is in(l) }} {{ n is eq 7 }} {{ n is not ne 7 }} {{ n is gt 5 }} {{ n is ge(7) }} {{ n is lessthan 8 }} {{ 'x'|safe is escaped }} {{ range is callable }} {{ 'upper' is filter }} {{ 'odd' is test }} {{ d.items() is sequence }} {{ d.items() is mapping }} {{ missing is sequence }} {{ missing is iterable }} {{ missing is mapping }} {{ missing is string }} {{ none is iterable }}
{{ 'a' is odd }}
{{ n is nope }}
{{ n is divisibleby 0 }}
{{ n|nope }}
{% if f %}{{ n|nope }}{% endif %}ok
{% if t %}{{ n|nope }}{% endif %}
{{ (n|nope) if f else 'ok' }}
{% if f %}{% for x in l %}{{ x|nope }}{% endfor %}{% endif %}ok
{% macro m() %}{{ 1|nope }}{% endmacro %}ok
{{ n is not defined }} {{ missing is not defined or n }} {{ n is defined and n > 3 }} {{ not n is defined }} {{ n is string or n is number }}
{% if n > 5 %}big{% elif n > 3 %}mid{% else %}small{% endif %} {% if f %}a{% elif t %}b{% endif %} {% if missing %}x{% else %}y{% endif %} {% if not l %}e{% endif %}
{% if d.b is defined and d.b %}A{% endif %}{% if 'a' in d and d['a'] == 2 %}B{% endif %}
{% for x in l %}{{ x }}{% if not loop.last %},{% endif %}{% endfor %} {% for x in [] %}x{% else %}none{% endfor %} {% for x in l if x > 1 %}{{ loop.index }}:{{ x }} {% endfor %}
{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }}|{{ loop.previtem }}|{{ loop.nextitem }};{% endfor %}
{% for x in l if x > 1 %}{{ loop.length }}{{ loop.last }}{{ loop.nextitem }};{% endfor %}
{% for x in l|map('string') %}{{ loop.last }}{{ loop.length }}{{ x }};{% endfor %}
{% for x in range(6) %}{{ loop.cycle('a', 'b', 'c') }}{% endfor %}{% for x in [1, 1, 2, 2] %}{{ loop.changed(x) }}{% endfor %}
{% for a, b in [(1, 2), [3, 4], 'xy'] %}{{ a }}{{ b }} {% endfor %}{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for a, b in [(1, 2, 3)] %}{% endfor %}
{% for a, b in [(1,)] %}{% endfor %}
{% for a, b in [1] %}{% endfor %}
{% for x in none %}{% endfor %}
{% for x in 5 %}{% endfor %}
{% for x in missing %}x{% else %}none{% endfor %}{% for c in 'aé🙂' %}[{{ c }}]{% endfor %}{% for x in d %}{{ x }}{% endfor %}{% for x in (1, 2) %}{{ x }}{% endfor %}
{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% else %}never{% endfor %}
{% for x in l %}{% for y in l %}{% if y == x %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{% endfor %}
{% for item in [{'n': 1, 'c': [{'n': 2, 'c': [{'n': 3}]}, {'n': 4}]}] recursive %}{{ item.n }}@{{ loop.depth }}{% if item.c %}({{ loop(item.c) }}){% endif %}{% endfor %}
{% for x in l %}{{ loop(x) }}{% endfor %}
{{ loop }}|{% for x in l %}{% endfor %}{{ x }}
{% set x = 1 %}{% for i in l %}{% set x = i %}{{ x }}{% endfor %}{{ x }} {% if t %}{% set x = 9 %}{% endif %}{{ x }}
{% set ns = namespace(x=0, y='a') %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y }}{{ ns.z }}{{ ns }}
{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{{ ns['a'] }}
{% set d.x = 1 %}
{% set ns = namespace() %}{{ ns.x.y }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, e) = (3, 4) %}{{ c }}{{ e }}{% set p = 1, 2 %}{{ p }}
{% set a, b = 1 %}
{% set body %}a {{ n }} b{% endset %}[{{ body }}]{% set up | upper %}x{{ s }}{% endset %}[{{ up }}]{% set cut | trim | replace('a', 'b') %} aba {% endset %}[{{ cut }}]
{% set x = 1 %}{% set y %}{% set x = 2 %}{{ x }}{% endset %}{{ x }}{{ y }}
{% macro m(a, b='x', c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 2) }} {{ m(1, c=3) }} {{ m(b=5, a=6) }} [{{ m() }}] {{ m.name }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(x=2) }}
{% macro m(a) %}{{ a.b }}{% endmacro %}{{ m() }}
{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }} {{ m() }}
{% macro m(a) %}{% if a > 0 %}{{ a }}{{ m(a - 1) }}{% endif %}{% endmacro %}{{ m(5) }}
{% macro m() %}{{ y }}{% endmacro %}{% set y = 5 %}{{ m() }}{% set y = 6 %}{{ m() }}
{% macro outer() %}<{{ caller() }}>{% endmacro %}{% call outer() %}in {{ n }}{% endcall %}
{% macro outer(x) %}<{{ caller(x, 2) }}>{% endmacro %}{% call(a, b=9) outer(1) %}{{ a }}{{ b }}{% endcall %}
{% macro outer() %}{{ caller is defined }}{% if caller %}{{ caller() }}{% endif %}{% endmacro %}{{ outer() }}{% call outer() %}y{% endcall %}
{% macro outer() %}{{ caller() }}{% endmacro %}{{ outer() }}
{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}
{{ m() }}{% macro m() %}{% endmacro %}
{% macro a() %}A{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}{{ a }}
{% macro m(x) %}  {{ x }}  {% endmacro %}[{{ m(1)|trim }}][{{ m(1)|length }}]
{% for x in l %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}
{% filter upper %}a{{ s }}{% endfilter %} {% filter replace('a', 'b')|trim %} aa {% endfilter %}
{% with a = 1, b = 2 %}{{ a + b }}{% set a = 5 %}{{ a }}{% endwith %}[{{ a }}] {% with %}{% set q = 1 %}{{ q }}{% endwith %}[{{ q }}]
{% with a = 1, b = a %}[{{ b }}]{% endwith %}
{% block x %}b{{ n }}{% endblock %} {% block y %}{% endblock y %}
{% generation %}g{{ n }}{% set inner = 1 %}{% endgeneration %}[{{ inner }}]
{% raw %}{{ not }} {% this %}{% endraw %}|{%- raw -%}  x {{ }}  {%- endraw -%}  |
a {# comment {{ x }} #} b {#- c -#} d
{#+ c +#}
{{ '{{' }} {{ '%}' }} {{ {'a': {'b': 1}}['a']['b'] }} {{ "}}" }}
{% print 1, 2 %}{% print s %}
{{ range(5)|list }} {{ range(1, 4)|list }} {{ range(5, 0, -2)|list }} {{ range(3) }} {{ range(0, 10, 3) }} {{ range(5)[2] }} {{ range(10)[2:5]|list }}
{{ range(0, 1, 0) }}
{{ range(1000000) }}
{{ range('a') }}
{{ dict(a=1, b=2) }} {{ dict([('x', 1)]) }} {{ dict({'a': 1}, b=3) }} {{ dict.fromkeys(['a', 'b'], 0) if false else '' }}
{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.reset() }}{{ c.next() }}{% set j = joiner('; ') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}
{{ raise_exception('no ' ~ n) }}
{% if f %}{{ raise_exception('x') }}{% endif %}fine
{{ strftime_now('%Y-%m-%d %H:%M %B %A %j %%') }}
{% include 'x' %}
{% if f %}{% include 'x' %}{% endif %}ok
{{ s
{% if t %}
{% endif %}
{% nope %}
{{ 1 + }}
{{ (1 }}
{{ 1) }}
{{ [1, 2 }}
{{ 'abc }}
{{ a b }}
{% for x %}{% endfor %}
{% set 1 = 2 %}
{% if t %}{% endfor %}
{{ a ? b }}
{{ f(a=1, 2) }}
{{ m(*l) }}{% macro m(a, b, c) %}{{ a }}{{ b }}{{ c }}{% endmacro %}
{% macro m(a, b, c) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(*l) }}{{ m(1, **{'b': 2, 'c': 3}) }}
{% macro m(a=1, b) %}{% endmacro %}
{{ d.b.real }}|{{ t.real }}
{{ s.foo() }}
{{ messages | length }}{{messages|length}}{{- n -}}   x
{{ (l + [4])[1:] | join(',') }} {{ s | length > 5 }} {{ not s | length > 50 }} {{ n + l | length }} {{ 'a' ~ 'b' | upper }} {{ -l[0] }} {{ l[0] ** 2 }} {{ -2 ** 2 }}
{{ 1 in l and 2 in l }} {{ 1 not in l }} {{ not 1 in l }} {{ 'a' 'b' in 'xab' }}
{% set content = messages[1]['content'] %}{{ content.split('</b>')[-1].lstrip('\n') }}|{{ content|trim }}|
{% for m in messages %}{% if m.content is string %}{{ m.role }}:{{ m.content|trim }}{% elif m.content is iterable and m.content is not none %}{% for p in m.content %}{{ p.type }}{% if p.text is defined %}={{ p.text }}{% endif %},{% endfor %}{% else %}{{ m.tool_calls[0].function.arguments|tojson }}{% endif %};{% endfor %}
{{ messages[2].tool_calls[0].function.arguments }} {{ messages[2].content }} {{ messages[2].tool_calls|length }}
{% set ns = namespace(last=-1) %}{% for m in messages[::-1] %}{% if ns.last < 0 and m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{{ ns.last }}{{ messages[1:][0].role }}{{ (messages|last).role }}
{{ 9223372036854775807 }} {{ -9223372036854775807 - 1 }}
{{ 1 if true }} {{ True }} {{ None }} {{ False }}
{{ [1, 2, 3,] }} {{ {'a': 1,} }} {{ (1, 2,) }} {{ range(1, 3,)|list }}
{{ 1.5.real }} {{ l.0 }} {{ ll.0.1 }} {{ ll[0].1 }}
{{ l.count(1) }} {{ l.index(2) }} {{ (1, 2).index(2) }} {{ n.bit_length() }} {{ 1.0.is_integer() }}
{{ l.index(9) }}
{{ 'é' }} {{ 'é'|length }} {{ 'é'|upper }} {{ 'İ'|lower|length }} {{ 'ŉ'|upper }} {{ 'ﬁ'|capitalize }}
{{ namespace(a=1).a }} {{ namespace() is mapping }} {{ namespace() is iterable }}
{{ {'a': 1}.a }} {{ {'a': 1}['a'] }}
{{ {[1]: 2} }}
{{ [[1, 2], [3, 4]] | map('sum') | list }} {{ [[1, 2], [3, 4]] | sum(start=[]) }} {{ ['a', 'b'] | map('upper') | map('lower') | join }}
{{ 'a' | default('b') | upper | lower | title }} {{ (1, 2) | last }} {{ 'abc' | first | upper }}
{{ 'abc'[1:2] ~ 'abc'[-1] }} {{ 'abc'.upper()[0] }} {{ ('a,b'.split(','))[1] }} {{ 'a,b'.split(',')[1] }} {{ 'a,b'.split(',') | last }}
{{ x.y is defined }}
{{ d.x.y is defined }}
{{ d.x is defined and d.x.y }}
{{ loop.index }}
{{ 1 is string is none }}
{{ 3.0 }} {{ 3.0 | int }} {{ 10 / 5 }} {{ 10 // 5 }} {{ 3.7 // 1 }} {{ 1e308 * 10 }} {{ -1e308 * 10 }} {{ 2.0 ** 0.5 }} {{ 1e15 + 0.5 }} {{ 123456789012345680.0 }} {{ 5e-324 }} {{ 1.7976931348623157e308 }} {{ 0.1 }} {{ 1/3 }} {{ -0.0 }}
{{ '1' * 3 }} {{ [none] * 2 }} {{ true + true }} {{ true * 'a' }} {{ 5 % 3.0 }}
{{ 'line1\
line2' }}
{{ s|e ~ '<' }} {{ '<' ~ (s|e) }} {{ ('%s'|safe) % '<' }} {{ '%s' % ('<'|safe) }} {{ ('{}'|safe).format('<') }}
""".strip("\n").split("\n")

# Templates of several lines: white space is the point.
BLOCKS = [
    "{% if t %}\n  a\n{% endif %}\nb\n",
    "  {% if t %}  \n  a\n  {% endif %}  \n  b\n\n",
    "x {% if t %} y {% endif %} z",
    "  {%+ if t %}a{% endif +%}\n  b",
    "  {%- if t -%}  \n\n a \n {%- endif -%} \n b",
    "{% for x in l %}\n  {{ x }}\n{% endfor %}\nend",
    "{% for x in l -%}\n  {{ x }}\n{%- endfor %}\nend",
    "a\n  {# c #}\nb\n\t{#- c -#}\n c\n{#+ c +#}\n d",
    "  {{ n }}\n  {{- n }}  \n  {{ n -}}  \n x",
    "{{ n }}\n\n",
    "{{ n }}\n",
    "\n{{ n }}",
    "\n\n{% set x = 1 %}\n\n{{ x }}\r\n a\rb\n",
    "{% raw %}\n  {{ x }}\n{% endraw %}\nafter",
    "  {% raw %}  a  {% endraw %}  b",
    "  {%- raw %}\n a {% endraw -%}\n b",
    "{% macro m(a) -%}\n  [{{ a }}]\n{%- endmacro %}\n{{ m(1) }}\n{{ m(2) -}}\n!",
    "{% set x %}\n  a\n  b\n{% endset %}\n[{{ x }}]",
    "{%if t%}a{%endif%}{%-if t-%} b {%-endif-%}",
    "a \u00a0{%- if t %}x{% endif %}",
    "\u00a0 {% if t %}x{% endif %}",
    "{% if t\n   and n > 3 %}\n  multi\n{% endif %}",
    "{{ {\n  'a': 1,\n  'b': [2,\n 3]\n} }}",
    "{% for m in messages -%}\n<|{{ m.role }}|>\n{% if m.content is string -%}\n{{ m.content }}\n{%- endif %}\n{% endfor -%}\nend",
    "{% if t %}a{% endif %}\n{% if t %}b{% endif %}\n\n{% if f %}c{% endif %}\n d",
    "{{- '' }}\n  {%- for x in l %}\n    {{- x }}\n  {%- endfor %}\n",
    "line\n{% for x in [] %}{% endfor %}\n{{ 1 / 0 }}",
    "{% generation %}\n a\n{% endgeneration %}\n b",
    "{% filter indent(2) %}\na\nb\n{% endfilter %}\nc",
    "{#\n multi\n#}\nx {#- y -#}\n\nz",
    "{%- macro a() %}\n  {% for i in range(2) %}\n    {{ i }}\n  {% endfor %}\n{% endmacro -%}\n[{{ a() }}]",
]


def environment():
    class Generation(jinja2.ext.Extension):
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

        def _body(self, caller):
            return caller()

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


def render(template, variables):
    try:
        return {"text": environment().from_string(template).render(**variables)}
    except Exception as error:  # whatever Python raises is the result
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    cases = [{"template": t, **render(t, VARIABLES)} for t in TEMPLATES + BLOCKS]
    json.dump({"made_with": f"Jinja2 {jinja2.__version__}, Python {sys.version.split()[0]}",
               "variables": VARIABLES, "cases": cases}, sys.stdout, indent=0, ensure_ascii=False)
    print()
