"""Mutants of the core, all in one build.

cargo-mutants lists them: which text of which function is replaced by what. Built one by one they take a
minute each; so here each function gets all of its mutants at once, and a variable of the environment
chooses one at run time:

    fn wait(&self, …) -> Wait {
        match crate::mutants::chosen() {
            7 => { the body with mutant 7 }
            8 => { the body with mutant 8 }
            _ => { the body as it is }
        }
    }
"""

import collections
import dataclasses
import json
import os
import pathlib
import re
import subprocess

# What a compiler warns of in mutants, or can see to fail, is for the tests to notice.
ALLOWED = "#![allow(warnings, arithmetic_overflow, unconditional_panic)]\n"
CHOSEN = """
mod mutants {
    pub(crate) fn chosen() -> u32 {
        static CHOSEN: std::sync::LazyLock<u32> = std::sync::LazyLock::new(|| {
            std::env::var("TIDEGATE_MUTANT").ok().and_then(|number| number.parse().ok()).unwrap_or(0)
        });
        *CHOSEN
    }
}
"""


@dataclasses.dataclass(frozen=True)
class Mutant:
    file: str  # below core/src, without `.rs`
    number: int  # from 1
    start: int
    end: int
    new: str
    function: tuple  # its start and end
    returns: str
    name: str  # which does not change if the function is moved


def offset(lines, place):
    """Of a line and a column from 1, as cargo-mutants counts them: in the text."""
    return sum(map(len, lines[: place["line"] - 1])) + place["column"] - 1


def mutants(root):
    command = ["cargo", "mutants", "--list", "--json"]
    listed = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, check=True).stdout
    seen, lines = collections.Counter(), {}
    for number, found in enumerate(json.loads(listed), 1):
        path, span, function = found["file"], found["span"], found["function"]
        # A constant has its value before a mutant can be chosen.
        if function is None:
            continue
        if path not in lines:
            lines[path] = (root / path).read_text().splitlines(keepends=True)
        start, end = offset(lines[path], span["start"]), offset(lines[path], span["end"])
        file = path.removeprefix("core/src/").removesuffix(".rs")
        line = lines[path][span["start"]["line"] - 1].rstrip("\n")
        if found["genre"] in ("BinaryOperator", "UnaryOperator"):
            # As `git diff --word-diff` shows it.
            at = span["start"]["column"] - 1
            old = line[at : at + end - start]
            added = "{+%s+}" % found["replacement"] if found["replacement"] else ""
            what = (line[:at] + "[-%s-]%s" % (old, added) + line[at + end - start :]).strip()
            what += " in " + function["function_name"]
        else:
            what = re.sub(r"\s+", " ", found["name"].split(": ", 1)[1])
        seen[file, what] += 1
        nth = "" if seen[file, what] == 1 else "#%d" % seen[file, what]
        place = tuple(offset(lines[path], function["span"][end]) for end in ("start", "end"))
        name = "%s%s | %s" % (file, nth, what)
        yield Mutant(file, number, start, end, found["replacement"], place, function["return_type"], name)


def start_of_body(text, start):
    """Where the first brace is that is in no parentheses, behind comments and attributes."""
    place = re.compile(r"(?:\s*(?://|#\[)[^\n]*\n)*").match(text, start).end()
    depth = 0
    while depth or text[place] != "{":
        depth += (text[place] in "([") - (text[place] in ")]")
        place += 1
    return place


def with_mutants(text, chosen):
    """The text of a file with these mutants of it, and the mutant of each line, if it is one's."""
    functions = collections.defaultdict(list)
    for mutant in chosen:
        functions[mutant.function].append(mutant)
    # Of a function within another, all is within the outer one's mutants.
    for inner in sorted(functions):
        for outer in functions:
            if outer != inner and outer[0] <= inner[0] and inner[1] <= outer[1]:
                functions[outer] += functions.pop(inner)
                break
    made, owners, done = [], [], 0

    def add(piece, owner=None):
        made.append(piece)
        owners.extend([owner] * piece.count("\n"))

    for start, end in sorted(functions):
        head = start_of_body(text, start)
        add(text[done:start] + re.sub(r"\bconst (?=fn )", "", text[start:head]))
        # Of an `impl Iterator`, all mutants have to be of one type, and their items too.
        items = re.match(r"-> impl Iterator\s*<\s*Item\s*=\s*(.*?)>(?:\s*\+\s*'_)?$", functions[start, end][0].returns)
        one, other = "{", "}"
        if items:
            one, other = "({", "}).map(|it| -> %s { it }).collect::<Vec<_>>().into_iter()," % items[1]
        add("{\nmatch crate::mutants::chosen() {\n")
        for it in functions[start, end]:
            body = text[head + 1 : it.start] + it.new + text[it.end : end - 1]
            add("%d => %s%s%s\n" % (it.number, one, body, other), it)
        add("_ => %s%s%s\n}\n}" % (one, text[head + 1 : end - 1], other))
        done = end
    add(text[done:])
    # So many copies are not to be inlined everywhere.
    return "".join(made).replace("#[inline(always)]", "#[inline]"), owners


def write(root, folder, chosen):
    """A copy of the workspace with all these mutants, and of each of its changed files the lines' mutants."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    of_file = collections.defaultdict(list)
    for mutant in chosen:
        of_file["core/src/%s.rs" % mutant.file].append(mutant)
    owners, copies = {}, set()
    for name in os.fsdecode(listed).split("\0"):
        if not name or not (root / name).is_file():
            continue
        content = (root / name).read_bytes()
        if name in of_file:
            text, owners[name] = with_mutants(content.decode(), of_file[name])
            content = text.encode()
        elif name == "core/src/lib.rs":
            content = ALLOWED.encode() + content + CHOSEN.encode()
        copy = folder / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        # What has not changed need not be built again.
        if not copy.exists() or copy.read_bytes() != content:
            copy.write_bytes(content)
        copies.add(copy)
    # A file that was renamed since the last copy would be a second one of its module.
    for path in folder.rglob("*"):
        if path.is_file() and path not in copies:
            path.unlink()
    return owners


def without_unviable(root, folder, chosen, check):
    """Writes the copy, and leaves out mutants that do not compile until it does: the ones left, the others."""
    unviable = set()
    while True:
        owners = write(root, folder, [m for m in chosen if m not in unviable])
        checked = subprocess.run(check, cwd=folder, stdout=subprocess.PIPE)
        if checked.returncode == 0:
            return [m for m in chosen if m not in unviable], sorted(unviable, key=lambda m: m.number)
        more = set()
        for line in checked.stdout.splitlines():
            message = json.loads(line).get("message") or {}
            if message.get("level") == "error":
                for span in message["spans"]:
                    lines = owners.get(span["file_name"])
                    owner = lines and span["is_primary"] and lines[span["line_start"] - 1]
                    if owner:
                        more.add(owner)
        if not more:
            raise SystemExit("the core does not compile, and not because of a mutant")
        unviable |= more
