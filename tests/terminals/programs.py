"""The programs whose screens are compared, and the keys that are pressed in them."""

import re

WORDS = "\n".join(f"duck {n} " + ("ünïcode 漢字 " if n % 3 else "e\u0301 ") + "\x1b[3%dmcolor\x1b[0m" % (n % 8) for n in range(1, 401))
# No question about the terminal: quack and tmux answer with their own names, and vim then draws in another way.
VIM = ("vim -u NONE -i NONE -nN --cmd 'set mouse=a ruler showcmd hlsearch t_RV= t_u7= t_RF= t_RB= t_RS= t_RC= t_SH=' "
       "--cmd 'syntax on' main.rs")
RUST = "".join(f'/// Duck {n}: 漢字\nfn duck_{n}() -> &\'static str {{\n    "quack {n}" // loud\n}}\n\n' for n in range(40))


def key(*names):
    return "key", names


def text(words):
    return "text", words


class Program:
    """`command` runs in a shell. `ready` is on its first screen. Each of `steps` changes the screen. `touch` types and
    changes nothing in the end. `quit` ends it with `code`. `settled` makes it draw its whole screen after a resize.
    `mask` removes known differences from rows without colors and returns those to compare, or is None."""

    def __init__(self, package, command, ready, steps, touch, quit, code=0, settled=None, mask=None):
        self.package, self.command, self.ready, self.steps = package, command, ready, steps
        self.touch, self.quit, self.code, self.settled, self.mask = touch, quit, code, settled, mask


def htop_mask(rows):
    """htop shows times, loads and processes: all of the machine directly, those of the sandbox in quack. Its frame is
    compared: the heads of the columns, the titles of its settings, and the keys at the bottom."""
    plain = [re.sub(r"\{[\d;]*\}", "", row) for row in rows]
    frame = [n for n, row in enumerate(plain) if re.search(r"PID.*Command|^F\d|^ *Categories|Available meters", row)]
    return [rows[n] if re.match(r"F\d+", plain[n]) else plain[n].split("PID")[-1].strip() for n in frame]


PROGRAMS = {
    "vim": Program("vim", VIM, "Duck 0", [
        (text(":set number"), key("Enter")), (text("/quack 7"), key("Enter")), (text("otyped ünïcode 漢字"), key("Escape")),
        (text(":vsplit"), key("Enter")), (text("Vjj"),), (key("Escape"),)], (text("j"), text("k")),
        (key("Escape"), text(":qa!"), key("Enter")), settled=(key("Escape", "C-w", "="),)),
    "less": Program("less", "env LESSHISTFILE=- less -R words", "duck 1", [
        (text(" "),), (text("/duck 77"), key("Enter")), (text("G"),), (text("b"),), (text("="),)],
        (text("j"), text("k")), (text("q"),)),
    "htop": Program("htop", "htop -d 100", "F10", [(key("F2"),), (key("Down"),), (key("F10"),)], (key("Down"), key("Up")),
                    (text("q"),), mask=htop_mask),
    "fzf": Program("fzf", "fzf --no-mouse <words", "400/400", [
        (text("7"),), (text("7"),), (key("C-u"),), (text("duck 1"),), (key("Up"),), (key("Down"),)],
        (text("x"), key("BSpace")), (key("Escape"),), code=130),
    "bash": Program("bash", "env PS1='in$ ' INPUTRC=/dev/null bash --noprofile --norc -i", "in$", [
        (text("printf '\\e[1;4;38;5;208mloud\\e[0m \\e[48;2;10;20;30mtrue\\e[0m\\n'"), key("Enter")),
        (text("seq 1 40"), key("Enter")), (text("echo ünïcode 漢字"),), (key("C-a"),), (text("true; "),), (key("C-c"),),
        (text("cat"), key("Enter")), (text("two"), key("Enter")), (key("C-z"),), (text("fg"), key("Enter")), (key("C-d"),)],
        (text("x"), key("BSpace")), (text("exit 7"), key("Enter")), code=7, settled=(key("C-l"),)),
    "python3": Program("python3", "/usr/bin/python3 -q", ">>>", [
        (text("sum(range(10))"), key("Enter")), (text("print('\\x1b[32mgreen\\x1b[0m', '漢字')"), key("Enter")),
        (text("[n for n in range(200)]"), key("Enter")), (text("1/0"), key("Enter")), (text("input('name? ')"), key("Enter")),
        (text("duck"), key("Enter")), (text("half"),), (key("C-c"),)],
        (text("x"), key("BSpace")), (text("exit(3)"), key("Enter")), code=3, settled=(key("C-l"),)),
}
# `steps` is the number of the menu.
VTTEST = {f"vttest-{menu}": Program("vttest", "vttest", "Enter choice number", menu, (), (text("0"), key("Enter")))
          for menu in "128"}
# Numbers of the screens that differ, with the sequences that quackd drops: 132 columns (and its clearing of the screen),
# the test pattern DECALN, origin mode (?6), tabulators at other columns (HTS, TBC), and insert mode (CSI 4 h).
VTTEST_DIFFERENT = {
    "vttest-1": {0: "DECALN", 1: "DECALN", 2: "132 columns", 3: "132 columns"},
    "vttest-2": {1: "HTS, TBC", 6: "?6", 7: "?6", 8: "?6", 9: "?6", 10: "?6"},
    "vttest-8": {1: "?6", 2: "?6, insert mode", 3: "?6", 8: "?6", 9: "?6, insert mode", 10: "?6"},
}
