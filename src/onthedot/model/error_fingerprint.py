"""Groups of similar errors: by source, type, message without its varying parts, and the line that raised it."""

from __future__ import annotations

import re
from hashlib import sha256

from onthedot.codec.task_failure import TaskFailure

_MAX_MESSAGE = 10_000  # characters that are read: the cause is at the beginning
_MAX_TEMPLATE = 1000  # characters that are kept
_MAX_NESTING = 10  # levels of brackets

# The varying parts, longer before shorter ones: a URL contains numbers. Repetitions are bounded, or begin where a word
# begins, so that no message takes quadratic time.
_VARIES = re.compile(
    r"""
    (?<!\w) (?:
      (?P<keep> (?: errno | signal | exit\ (?:code|status) | status(?:\ code)? | http ) [\s:=\[(]{1,3} \d{1,3} \b(?!\.)
               | sqlstate [\s:=\[(]{1,3} \w{5} \b
               | ['"]? [1-5]\d\d \  (?-i: [A-Z][a-z]+ (?:\ [A-Z][a-z]+){0,3} ) ['"]? )    # numbers that name a cause
    | '\[ [^\]\n]{0,2000} \]'                                                             # '['git', 'clone']'
    | [bur]{0,2} (?: '(?:[^'\\]|\\.|'(?=\w))*+' | "(?:[^"\\]|\\.)*+" | `[^`]*` | “[^”]*” | ‘[^’]*’ | «[^»]*» ) (?!\w)
    | [bur]{0,2} (?: '(?:[^'\\]|\\.|'(?=\w))*+ | "(?:[^"\\]|\\.)*+ ) \\? $                # quoted, and cut off
    | [a-z][a-z0-9+.-]{0,20} :// (?: \[[0-9a-f:]+\] )? [^\s'"<>)\]}]+                     # a URL
    | (?<![.+-]) [\w.+-]{1,100} @ [\w-]{1,100} (?:\.[\w-]{1,100})+                        # ann@example.com
    | < [^<>\n]{0,200} \b(?:at|id)\b [\s=]{1,3} 0x[0-9a-f]+ [^<>\n]{0,200} >              # <app.Order object at 0x7f…>
    | [a-z]:\\ [^\s'"<>|]+                                                                # C:\Users\ann
    | (?<![/.]) (?: ~ | \.{1,2} )? (?: / [\w.@%+~=:-]{1,255} )+ /? (?: \? \S* )?          # /var/lib/shop.db
    | (?<![.-]) [\w.-]{1,255} (?: / [\w.@%+~-]{1,255} ){2,}                               # data/2026/orders
    | (?<![.-]) [\w.-]{1,255} \. (?:csv|gz|html?|jpe?g|json|log|pdf|png|tar|tmp|txt|xlsx?|xml|ya?ml|zip) \b
    | (?: (?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?\b ,? \s{1,3} )? (?: \d{1,2} \s{1,3} )?
      (?: jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?
        | nov(?:ember)?|dec(?:ember)? ) \s{1,3} \d{1,4} \b                                # Mon, 16 Nov 2026
    | (?<!:) (?=[0-9a-f:]{0,39}\d) (?: [0-9a-f]{0,4} : ){2,7} [0-9a-f]{1,4} \b            # an IPv6 address
    | (?<![.-]) (?: localhost | [\w-]{1,63} (?:\.[\w-]{1,63}){1,9} ) : \d{2,5} \b         # db.internal:5432
    | (?<![.-]) [\w-]{1,63} (?:\.[\w-]{1,63}){0,9} \. (?:app|cloud|com|dev|example|internal|io|lan|local|net|org) \b
    | (?<!-) (?=[\w-]{0,200}\d) [\w-]{20,} (?: \.[\w-]{2,} )*                             # a token
    | [0-9a-f]{7,} \b                                                                     # deadbeef has no digit
    | [-+]? (?=[\w-]{0,200}\d) \w+ (?: [-+_%]+\w+ | [.,:]\d\w* | \.(?-i:[a-z][a-z0-9-]*)\b )*        # 17, -2.5, ord-17a
      (?: % | \ (?: [kmgtp]i?b | bytes? | [mµn]?s | sec(?:ond)?s? | min(?:ute)?s? | hours? | days? )\b )?
    | (?<=[\[({,:=]) \s* (?:none|true|false|null|nan) \b (?= \s* (?: [\])},] | $ ) )
    )
    | \( \s* (?:\?|%s|\$\d+|:\w+|%\(\w+\)s) (?: \s*,\s* (?:\?|%s|\$\d+|:\w+|%\(\w+\)s) )* \s* \)  # values of SQL
    """,
    re.VERBOSE | re.IGNORECASE,
)
_BRACKETED = re.compile(r"[\[{]\s*(?:…[\s,:]*)?[\]}]|(?<!\w)\(\s*…[\s,]*\)")
_CUT_OFF = re.compile(r"(?:(?<![\[{(])[\[{(]{1,20}(?:\s*…)?[\s,:.]*){1,20}[a-zA-Z-]{0,5}$")
_IN_A_ROW = re.compile(r"…(?:\s*(?:=>|->|[,;:/|=&.+-])?\s*…)+")
_COUNTED = re.compile(r"(?<=… )[a-z]{3,}")
_FRAME = re.compile(r'^  File "(?P<file>.*)", line \d+, in (?P<function>.*)\n(?:    (?P<code>.*)\n)?', re.MULTILINE)
_LIBRARY = re.compile(r"[\\/](?:site-packages|dist-packages|lib[\\/]python3\.\d+)[\\/]|^<")


def fingerprint(source: str, error: TaskFailure) -> str:
    """A short name for a group of similar errors.

    >>> ann = TaskFailure("KeyError", "no order 17 for 'ann'")
    >>> bob = TaskFailure("KeyError", "no order 4 for 'bob'")
    >>> fingerprint("send", ann) == fingerprint("send", bob)
    True
    """
    template = _COUNTED.sub(_singular, message_template(error.message))
    return sha256("\n".join([source, error.type, template, error_line(error)]).encode()).hexdigest()[:8]


def message_template(message: str) -> str:
    """A message with … in place of numbers, ids, names and lists of them.

    >>> message_template("GET https://api.example.com/orders/17 gave 503 after 2.5 s: {'id': 17, 'tags': ['a', 'b']}")
    'GET … gave … after …'
    """
    text = _VARIES.sub(lambda found: found["keep"] or "…", message[:_MAX_MESSAGE])
    for _ in range(_MAX_NESTING):
        shorter = _CUT_OFF.sub("…", _IN_A_ROW.sub("…", _BRACKETED.sub("…", text)))
        if shorter == text:
            break
        text = shorter
    return "\n".join(dict.fromkeys(text.splitlines()))[:_MAX_TEMPLATE]  # a list may have any number of lines


def error_line(error: TaskFailure) -> str:
    """The last line of the user's own code in the traceback, without its number, which moves with every edit.

    Equal messages from different lines have different causes.
    """
    frames = list(_FRAME.finditer(error.traceback))
    own = [frame for frame in frames if not _LIBRARY.search(frame["file"])]
    if not frames:
        return ""
    frame = (own or frames)[-1]
    return f"{frame['function']}: {frame['code'] or ''}".strip().removesuffix(":")


def _singular(found: re.Match[str]) -> str:
    """The singular of a counted noun: "1 retry" and "2 retries" have one cause."""
    word = found[0].removesuffix("s")
    return f"{word[:-2]}y" if word.endswith("ie") else word.removesuffix("e")
