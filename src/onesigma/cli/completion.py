"""``onesigma completion``: what a shell needs to complete commands and options."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from onesigma.cli.options import Commands, command


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "completion",
        "a script for tab completion in your shell",
        example='eval "$(onesigma completion bash)"          # in ~/.bashrc'
        '\n  eval "$(onesigma completion zsh)"           # in ~/.zshrc, after compinit'
        "\n  onesigma completion fish | source           # in ~/.config/fish/config.fish",
    )
    parser.add_argument("shell", choices=tuple(SCRIPTS))
    parser.set_defaults(run=partial(run, commands))


def run(commands: Commands, options: argparse.Namespace) -> None:
    print(SCRIPTS[options.shell](_tree(commands)), end="")


@dataclass(frozen=True)
class Command:
    """What can follow a command: options, and words where it takes one of a few; else files."""

    name: str
    summary: str
    options: list[argparse.Action]
    words: list[str]

    @property
    def flags(self) -> list[str]:
        return [flag for action in self.options for flag in action.option_strings]

    @property
    def choices(self) -> dict[str, list[str]]:
        """By option, the values that it takes."""
        return {
            flag: [str(choice) for choice in action.choices]
            for action in self.options
            if action.choices is not None
            for flag in action.option_strings
        }


def _tree(commands: Commands) -> list[Command]:
    """Read from the parsers themselves, so that it is never out of date."""
    summaries = {each.dest: each.help or "" for each in commands._choices_actions}
    return [
        Command(
            name,
            summaries[name],
            [action for action in parser._actions if action.option_strings],
            [
                str(choice)
                for action in parser._actions
                if not action.option_strings
                for choice in action.choices or ()
            ],
        )
        for name, parser in commands.choices.items()
    ]


# The body of the function for bash and zsh: both know these words.
_CASES = r"""    local command="" word found=""
    for word in "${before[@]}"; do
        case $word in -*) ;; *) command=$word; break ;; esac
    done
    case "$command $previous" in
@CHOICES@
        *)
            if [[ -z $command ]]; then
                found="@COMMANDS@"
            elif [[ $current == -* ]]; then
                case $command in
@FLAGS@
                esac
            else
                case $command in
@WORDS@
                esac
            fi ;;
    esac
"""
_BASH = f"""_onesigma() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
    local -a before=("${{COMP_WORDS[@]:1:COMP_CWORD-1}}")
{_CASES}
    COMPREPLY=($(compgen -W "$found" -- "$current"))
}}
complete -o default -F _onesigma onesigma  # default: files where nothing fits
"""
_ZSH = f"""#compdef onesigma
_onesigma() {{
    local current=$words[CURRENT] previous=$words[CURRENT-1]
    local -a before=("${{(@)words[2,CURRENT-1]}}")
{_CASES}
    if [[ -n $found ]]; then compadd -- ${{=found}}; else _files; fi
}}
compdef _onesigma onesigma
"""


def _from(template: str, tree: list[Command]) -> str:
    def case(pattern: str, values: list[str], indent: int) -> str:
        return f'{" " * indent}{pattern}) found="{" ".join(values)}" ;;'

    choices = [
        case(f'"{each.name} {flag}"', values, 8)
        for each in tree
        for flag, values in each.choices.items()
    ]
    parts = {
        "COMMANDS": " ".join(each.name for each in tree),
        "CHOICES": "\n".join(choices),
        "FLAGS": "\n".join(case(each.name, each.flags, 20) for each in tree),
        "WORDS": "\n".join(case(each.name, each.words, 20) for each in tree if each.words),
    }
    for name, text in parts.items():
        template = template.replace(f"@{name}@", text)
    return template


def _fish(tree: list[Command]) -> str:
    lines = ["complete -c onesigma -f -n __fish_use_subcommand"]
    for each in tree:
        about = _quoted(each.summary)
        lines.append(f"complete -c onesigma -n __fish_use_subcommand -a {each.name} -d {about}")
        after = f"complete -c onesigma -n '__fish_seen_subcommand_from {each.name}'"
        if each.words:
            lines.append(f"{after} -f -a {_quoted(' '.join(each.words))}")
        for action in each.options:
            lines.append(f"{after} {_fish_option(action)} -d {_quoted(_short(action))}")
    return "\n".join(lines) + "\n"


def _fish_option(action: argparse.Action) -> str:
    names = [
        f"-l {flag.removeprefix('--')}" if flag.startswith("--") else f"-s {flag[1:]}"
        for flag in action.option_strings
    ]
    if action.choices:
        names.append(f"-x -a {_quoted(' '.join(map(str, action.choices)))}")
    elif action.nargs != 0:
        names.append("-r")
    return " ".join(names)


def _short(action: argparse.Action) -> str:
    """The first clause of its help."""
    return (action.help or "").split(";")[0].split(":")[0]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "") + "'"


SCRIPTS: dict[str, Callable[[list[Command]], str]] = {
    "bash": partial(_from, _BASH),
    "zsh": partial(_from, _ZSH),
    "fish": _fish,
}
