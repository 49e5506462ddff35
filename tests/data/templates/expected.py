#!/usr/bin/env python3
"""Write NAME.json beside each NAME.jinja: what Jinja2 itself makes of some conversations.

    TZ=UTC python3 tests/data/templates/expected.py        (Debian: python3-jinja2)

The environment is that of Hugging Face's apply_chat_template. Each case holds the input and the
prompt, or the words with which the template refuses. expressions.json is a list of small templates,
each with its text or "error".
"""
import datetime
import json
import pathlib

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = 1750000000
HERE = pathlib.Path(__file__).parent


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("render"), [], [], body).set_lineno(line)

    def render(self, caller):
        return caller()


def refuse(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def strftime_now(form):
    return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(form)


environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                            extensions=[Generation, loopcontrols])
environment.filters["tojson"] = tojson
environment.globals.update(raise_exception=refuse, strftime_now=strftime_now)

SYSTEM = {"role": "system", "content": "Be kind."}
USER = {"role": "user", "content": "How warm is it in K\u00f6ln?"}
ANSWER = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nMild."}
AGAIN = {"role": "user", "content": "And \"now\"?\n"}
FUNCTION = {"name": "get_weather", "arguments": {"city": "K\u00f6ln", "days": 2}}
CALL = {"role": "assistant", "content": None,
        "tool_calls": [{"id": "call12345", "type": "function", "function": FUNCTION}]}
RESULT = {"role": "tool", "name": "get_weather", "tool_call_id": "call12345", "content": "{\"t\": 21}"}
PARTS = {"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]}
TOOL = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a <city>",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "Where"}, "days": {"type": "integer"}},
        "required": ["city"]}}}

CASES = [
    {"about": "a user's turn", "messages": [USER], "add_generation_prompt": True},
    {"about": "system and user", "messages": [SYSTEM, USER], "add_generation_prompt": True},
    {"about": "all turns answered", "messages": [SYSTEM, USER, ANSWER]},
    {"about": "a second question", "messages": [SYSTEM, USER, ANSWER, AGAIN], "add_generation_prompt": True},
    {"about": "tools", "messages": [SYSTEM, USER], "tools": [TOOL, TOOL], "add_generation_prompt": True},
    {"about": "a call and its result", "messages": [SYSTEM, USER, CALL, RESULT], "tools": [TOOL],
     "add_generation_prompt": True},
    {"about": "two results and an answer", "messages": [USER, CALL, RESULT, RESULT, ANSWER, AGAIN],
     "tools": [TOOL], "add_generation_prompt": True},
    {"about": "no thinking", "messages": [USER], "variables": {"enable_thinking": False},
     "add_generation_prompt": True},
    {"about": "parts of content", "messages": [PARTS], "add_generation_prompt": True},
    {"about": "two users in a row", "messages": [USER, AGAIN]},
]


def answer(text, case):
    """The case with what Jinja2 makes of it."""
    variables = {"bos_token": "<s>", "eos_token": "</s>", "tools": None, "documents": None,
                 "add_generation_prompt": False, "messages": []}
    variables.update({key: case[key] for key in ("messages", "tools", "add_generation_prompt") if key in case})
    variables.update(case.get("variables", {}))
    try:
        return {**case, "text": environment.from_string(text).render(**variables)}
    except jinja2.exceptions.UndefinedError as error:
        return {**case, "error": str(error)}
    except jinja2.exceptions.TemplateError as error:
        return {**case, "refusal" if type(error) is jinja2.exceptions.TemplateError else "error": str(error)}
    except (TypeError, ValueError, ZeroDivisionError) as error:
        return {**case, "error": str(error)}


def write(path, cases):
    path.write_text(json.dumps(cases, indent=1, ensure_ascii=False) + "\n")


for template in sorted(HERE.glob("*.jinja")):
    write(template.with_suffix(".json"), [answer(template.read_text(), case) for case in CASES])
expressions = json.loads((HERE / "expressions.json").read_text())
shared = expressions[0]["variables"]
write(HERE / "expressions.json", expressions[:1] + [
    {"template": e["template"],
     **{k: v for k, v in answer(e["template"], {"variables": shared}).items() if k in ("text", "error", "refusal")}}
    for e in expressions[1:]])
