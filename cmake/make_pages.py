# SPDX-License-Identifier: Apache-2.0
"""Writes the manual pages and the shells' completions, from the tables that also give --help:

    make_pages.py BERM_COMMAND SOURCE_FOLDER OUT_FOLDER

berm(1) is the help of the command and of each subcommand, berm.conf(5) what `berm conf` knows of the
options, libberm(3) the public headers, berm-preload(7) the tables of adapters/preload. In OUT_FOLDER
they lie as they are installed: man/man1/berm.1, bash/berm, zsh/_berm, fish/berm.fish."""
import json
import pathlib
import re
import subprocess
import sys

OPTION = re.compile(r"(--[a-z][\w-]*)")
SHORT = re.compile(r"(?<![\w-])-([a-z]), --([a-z][\w-]*)")


def ask(berm, *arguments):
    return subprocess.run([berm, *arguments], stdout=subprocess.PIPE, text=True, check=True).stdout


class Command:
    """A subcommand: its name, one line on it, its help."""

    def __init__(self, berm, name, summary):
        self.name, self.summary, self.help = name, summary, ask(berm, name, "--help")
        rows = [line.strip() for line in self.help.splitlines()
                if re.match(r"\s+(-\w, )?--[a-z]", line)]
        usage = self.help.split("\n\n")[0]
        self.options = sorted(set(OPTION.findall(" ".join([usage] + [re.split(r"\s{2,}", row)[0] for row in rows])))
                              | {"--help"})
        self.shorts = {long: short for short, long in SHORT.findall(" ".join(rows))}


def commands_of(berm):
    rows = re.findall(r"^  ([a-z]+) +(\S.*)$", ask(berm, "--help"), re.MULTILINE)
    return [Command(berm, name, summary) for name, summary in rows]


# --- roff ----------------------------------------------------------------------------------------

def roff(text):
    """Plain text, safe at the beginning of a line as well."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    return "\\&" + text if text[:1] in (".", "'") else text


def page(name, section, version, one_line, body):
    return (f'.\\" Made by cmake/make_pages.py; do not change it here.\n'
            f'.TH {name.upper()} {section} "" "berm {version}" "berm"\n'
            f".SH NAME\n{roff(name)} \\- {roff(one_line)}\n{body}")


def paragraphs(text):
    """Help text as roff: paragraphs are filled, rows "  --option  what" are a list, and other
    indented lines stay as they are."""
    out, row, is_kept, first_columns = [], False, False, None

    def keep(wanted):
        nonlocal is_kept
        if wanted != is_kept:
            out.append(".nf" if wanted else ".fi")
            is_kept = wanted

    for line in text.splitlines():
        option = re.match(r"^  +(-.+?)(?: {2,}(\S.*))?$", line)
        if not line.strip():
            keep(False)
            out.append(".PP")
            row = False
        elif option and re.match(r"-\w|--[a-z]", option.group(1)):
            keep(False)
            out += [".TP", f".B {roff(option.group(1))}"]
            out += [roff(option.group(2))] if option.group(2) else []
            row, first_columns = True, line.index(option.group(1))
        elif row and len(line) - len(line.lstrip()) > first_columns:
            out.append(roff(line.strip()))
        elif line.startswith(" "):
            keep(True)
            out.append(roff(line))
            row = False
        else:
            keep(False)
            out.append(roff(line))
            row = False
    keep(False)
    return "\n".join(out) + "\n"


def usage_and_rest(text):
    usage, _, rest = text.partition("\n\n")
    return usage.removeprefix("usage: "), rest


def command_page(berm, commands, version):
    usage, rest = usage_and_rest(ask(berm, "--help"))
    body = f".SH SYNOPSIS\n.nf\n.B {roff(usage)}\n.fi\n.SH DESCRIPTION\n{paragraphs(rest)}"
    body += ".SH COMMANDS\n"
    for command in commands:
        usage, rest = usage_and_rest(command.help)
        lines = "\n".join(f".B {roff(line.strip())}\n.br" for line in usage.splitlines())
        body += f".SS berm {command.name}\n{lines}\n.PP\n{paragraphs(rest)}"
    body += (".SH ENVIRONMENT\n.TP\n.B BERM_CONF\noptions of berm: see\n.BR berm.conf (5)\n"
             ".SH SEE ALSO\n.BR berm.conf (5),\n.BR libberm (3),\n.BR berm\\-preload (7)\n")
    return page("berm", 1, version, "replays, records, explains and runs the memory of GPU programs",
                body)


def conf_page(berm, version):
    body = (".SH DESCRIPTION\n"
            "Options are KEY:VALUE pairs. In order of precedence: those given to\n.BR berm_init (3),\n"
            "then the environment's\n.BR BERM_CONF \\(lqKEY:VALUE,KEY:VALUE\\(rq,\n"
            "then the file that the option\n.B conf_file\nor the environment's\n.B BERM_CONF_FILE\n"
            "names, one pair a line,\n.B #\nbegins a comment. Programs that run with the rights of "
            "another user take none from the environment.\n"
            ".B berm conf\nprints them with the values that hold.\n.SH OPTIONS\n")
    for option in json.loads(ask(berm, "conf", "--json"))["options"]:
        when = "at any time" if option["runtime"] else "at the start only"
        body += (f".TP\n.B {roff(option['name'])}\n{roff(option['text'])}.\n.br\n"
                 f"{roff(option['kind'])}, {roff(option['range'])}; by default "
                 f"{roff(option['default'] or 'empty')}; set {when}.\n")
    body += ".SH SEE ALSO\n.BR berm (1),\n.BR libberm (3)\n"
    return page("berm.conf", 5, version, "options of berm", body)


def comment_before(lines, at):
    """The // lines right above line `at`, without their slashes."""
    begin = at
    while begin > 0 and lines[begin - 1].startswith("//"):
        begin -= 1
    return [line[2:].removeprefix(" ") for line in lines[begin:at]]


def declarations(text):
    """(comment, declarations) of the functions; those that share a comment are together."""
    lines, found, at = text.splitlines(), [], 0
    while at < len(lines):
        if not lines[at].startswith("BERM_API"):
            at += 1
            continue
        begin, code = at, []
        while at < len(lines) and lines[at].startswith("BERM_API"):
            while not lines[at].rstrip().endswith(";"):
                code.append(lines[at])
                at += 1
            code.append(lines[at])
            at += 1
        found.append((comment_before(lines, begin), code))
    return found


def library_page(source, version):
    body = ".SH SYNOPSIS\n.nf\n"
    headers = sorted((source / "include").glob("berm*.h"))
    body += "".join(f".B #include <{header.name}>\n" for header in headers)
    body += ".fi\n.PP\nLink with\n.BR \\-lberm .\n.SH DESCRIPTION\n"
    intro = (source / "include/berm.h").read_text().split("#ifndef")[0].splitlines()[1:]
    body += ".nf\n" + "\n".join(roff(line[2:].removeprefix(" ")) for line in intro) + "\n.fi\n"
    for header in headers:
        functions = declarations(header.read_text())
        if functions:
            body += f".SH FUNCTIONS OF {roff(header.name)}\n"
        for comment, code in functions:
            plain = [re.sub(r"^BERM_API (BERM_CHECKED )?", "", line).strip() for line in code]
            names = ", ".join(re.findall(r"\b(berm_\w+)\(", " ".join(code)))
            body += f".SS {roff(names)}\n.nf\n" + "".join(f".B {roff(line)}\n" for line in plain)
            body += ".PP\n" + "".join(roff(line) + "\n" for line in comment) + ".fi\n"
    body += ".SH SEE ALSO\n.BR berm (1),\n.BR berm.conf (5)\n"
    return page("libberm", 3, version, "a caching allocator for CUDA device memory", body)


def preload_page(source, version):
    folder = source / "adapters/preload"
    options = re.findall(r'^PRELOAD_OPTION\(\w+, "(\w+)", (\w+), ([^,]+),\s*((?:"[^"]*"\s*)+)\)',
                         (folder / "option.def").read_text(), re.MULTILINE)
    entries = re.findall(r"^PRELOAD_ENTRY\w*\((\w+),", (folder / "entries.def").read_text(), re.MULTILINE)
    runtime = re.findall(r"^PRELOAD_API (\w+)\(", (folder / "runtime.h").read_text(), re.MULTILINE)
    body = (".SH SYNOPSIS\n.nf\n.B berm run [OPTION...] \\-\\- PROGRAM [ARGUMENT...]\n"
            ".B LD_PRELOAD=.../libberm_preload.so PROGRAM\n.fi\n.SH DESCRIPTION\n"
            "Serves the requests of a program that only knows cudaMalloc, cuMemAlloc and their relations "
            "from berm. The program is not changed.\n.SH OPTIONS\nIn the environment's\n"
            ".BR BERM_PRELOAD \\(lqKEY:VALUE,KEY:VALUE\\(rq;\nberm's own are in\n.BR BERM_CONF :\nsee\n"
            ".BR berm.conf (5).\n")
    for key, kind, value, text in options:
        default = {"SWITCH": {"1": "on", "0": "off"}.get(value)}.get(kind) or (
            "off" if value == "UINT64_MAX" else value)
        text = "".join(re.findall(r'"([^"]*)"', text))
        body += f".TP\n.B {roff(key)}\n{roff(text)}.\nBy default {default}.\n"
    body += ".SH CALLS\nOf the CUDA driver:\n" + ",\n".join(map(roff, entries)) + ".\n.PP\n"
    body += "Of the CUDA runtime:\n" + ",\n".join(map(roff, runtime)) + ".\n"
    body += ".SH SEE ALSO\n.BR berm (1),\n.BR berm.conf (5)\n"
    return page("berm-preload", 7, version, "berm for programs that only know cudaMalloc", body)


# --- completions ---------------------------------------------------------------------------------

BASH = """# bash completion of berm. Made by cmake/make_pages.py; do not change it here.
_berm() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} command=${{COMP_WORDS[1]}} i
    COMPREPLY=()
    for ((i = 2; i < COMP_CWORD; i++)); do
        if [[ ${{COMP_WORDS[i]}} == -- ]]; then # a program of the user's
            COMPREPLY=($(compgen -c -f -- "$word"))
            return
        fi
    done
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W "{names} --help --version" -- "$word"))
        return
    fi
    if [[ $word != -* ]]; then
        COMPREPLY=($(compgen -f -- "$word"))
        return
    fi
    case $command in
{cases}
    esac
}}
complete -o filenames -F _berm berm
"""


def bash_completion(commands):
    cases = "\n".join(f"    {command.name}) COMPREPLY=($(compgen -W \"{' '.join(command.options)}\""
                      f" -- \"$word\")) ;;" for command in commands)
    return BASH.format(names=" ".join(command.name for command in commands), cases=cases)


def zsh_completion(commands):
    quote = lambda text: text.replace("'", "'\\''").replace(":", "\\:")
    names = "\n".join(f"        '{command.name}:{quote(command.summary)}'" for command in commands)
    cases = "\n".join(f"    {command.name}) compadd -- {' '.join(command.options)} ;;"
                      for command in commands)
    return ("#compdef berm\n# Made by cmake/make_pages.py; do not change it here.\n"
            f"local -a names\nif ((CURRENT == 2)); then\n    names=(\n{names}\n    )\n"
            "    _describe command names\nelif [[ $PREFIX == -* ]]; then\n"
            f"    case $words[2] in\n{cases}\n    esac\nelse\n    _files\nfi\n")


def fish_completion(commands):
    quote = lambda text: "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    lines = ["# Made by cmake/make_pages.py; do not change it here."]
    for command in commands:
        lines.append(f"complete -c berm -n __fish_use_subcommand -a {command.name} "
                     f"-d {quote(command.summary)}")
        for option in command.options:
            long = option.removeprefix("--")
            short = f" -s {command.shorts[long]}" if long in command.shorts else ""
            lines.append(f"complete -c berm -n '__fish_seen_subcommand_from {command.name}' -l {long}{short}")
    return "\n".join(lines) + "\n"


def main():
    berm, source, out = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    version = ask(berm, "--version").split()[-1]
    commands = commands_of(berm)
    for name, text in {
            "man/man1/berm.1": command_page(berm, commands, version),
            "man/man5/berm.conf.5": conf_page(berm, version),
            "man/man3/libberm.3": library_page(source, version),
            "man/man7/berm-preload.7": preload_page(source, version),
            "bash/berm": bash_completion(commands),
            "zsh/_berm": zsh_completion(commands),
            "fish/berm.fish": fish_completion(commands)}.items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


main()
