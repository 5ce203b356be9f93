//! git's wildmatch (with `WM_PATHNAME`, case-sensitive) on bytes, step for step,
//! so that odd patterns give odd git's answers: `*`, `?` and `[...]` never match
//! `/`; `**` between slashes spans any number of names.

/// True if the whole of `text` matches `pattern`. Neither may hold a NUL byte.
pub(super) fn wildmatch(pattern: &[u8], text: &[u8]) -> bool {
    run(pattern, text) == Outcome::Match
}

/// Says why a pattern can never match anything, if so.
pub(super) fn check(pattern: &[u8]) -> Result<(), &'static str> {
    let mut p = 0;
    while p < pattern.len() {
        match pattern[p] {
            b'\\' if p + 1 == pattern.len() => return Err("it ends in a lone \\"),
            b'\\' => p += 1,
            b'[' => match bracket(pattern, p, 0) {
                Ok((_, last)) => p = last,
                Err(why) => return Err(why),
            },
            _ => {}
        }
        p += 1;
    }
    Ok(())
}

/// The index of the `]` that closes the class opened at `p`. The pattern has
/// passed [`check`].
pub(super) fn class_end(pattern: &[u8], p: usize) -> usize {
    bracket(pattern, p, 0).map_or(pattern.len(), |(_, last)| last)
}

/// True for the bytes that end git's literal prefix.
pub(super) fn is_special(b: u8) -> bool {
    matches!(b, b'*' | b'?' | b'[' | b'\\')
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Match,
    NoMatch,
    /// The text ran out: no star further left can help.
    AbortAll,
    /// A name ran out: only a `**` further left can help.
    AbortToStarStar,
}

enum Star {
    Done(Outcome),
    /// `*/` took the rest of one name: go on behind the slash in both.
    Slash {
        p: usize,
        t: usize,
    },
}

/// Like C's string access: 0 at the end.
fn at(s: &[u8], i: usize) -> u8 {
    s.get(i).copied().unwrap_or(0)
}

fn run(pattern: &[u8], text: &[u8]) -> Outcome {
    let (mut p, mut t) = (0, 0);
    while p < pattern.len() {
        let c = at(text, t);
        if c == 0 && pattern[p] != b'*' {
            return Outcome::AbortAll;
        }
        match pattern[p] {
            b'\\' => {
                p += 1;
                if c != at(pattern, p) {
                    return Outcome::NoMatch;
                }
            }
            b'?' => {
                if c == b'/' {
                    return Outcome::NoMatch;
                }
            }
            b'*' => match star(pattern, p, text, t) {
                Star::Done(outcome) => return outcome,
                Star::Slash { p: p2, t: t2 } => (p, t) = (p2, t2),
            },
            b'[' => match bracket(pattern, p, c) {
                Err(_) => return Outcome::AbortAll,
                Ok((false, _)) => return Outcome::NoMatch,
                Ok((true, _)) if c == b'/' => return Outcome::NoMatch,
                Ok((true, last)) => p = last,
            },
            literal => {
                if c != literal {
                    return Outcome::NoMatch;
                }
            }
        }
        p += 1;
        t += 1;
    }
    if t < text.len() { Outcome::NoMatch } else { Outcome::Match }
}

/// `pattern[first]` is a star. Follows the `case '*'` of git's `dowild`.
fn star(pattern: &[u8], first: usize, text: &[u8], t: usize) -> Star {
    let mut p = first + 1;
    let mut match_slash = false;
    if at(pattern, p) == b'*' {
        while at(pattern, p) == b'*' {
            p += 1;
        }
        // The start of the slice counts as "after a slash", as the start of a
        // (recursive) call does in git.
        let opens = first == 0 || pattern[first - 1] == b'/';
        let closes = match at(pattern, p) {
            0 | b'/' => true,
            b'\\' => at(pattern, p + 1) == b'/',
            _ => false,
        };
        if opens && closes {
            // `**/` may stand for nothing at all.
            if at(pattern, p) == b'/' && run(&pattern[p + 1..], &text[t..]) == Outcome::Match {
                return Star::Done(Outcome::Match);
            }
            match_slash = true;
        }
    }
    let slash = || text[t..].iter().position(|b| *b == b'/');
    if p == pattern.len() {
        let ok = match_slash || slash().is_none();
        return Star::Done(if ok { Outcome::Match } else { Outcome::AbortToStarStar });
    }
    if !match_slash && pattern[p] == b'/' {
        return match slash() {
            None => Star::Done(Outcome::AbortAll),
            Some(n) => Star::Slash { p, t: t + n },
        };
    }
    Star::Done(star_tail(&pattern[p..], text, t, match_slash))
}

/// Tries the rest of the pattern at each place the star could end.
fn star_tail(rest: &[u8], text: &[u8], mut t: usize, match_slash: bool) -> Outcome {
    while t < text.len() {
        if !is_special(rest[0]) {
            while t < text.len() && (match_slash || text[t] != b'/') && text[t] != rest[0] {
                t += 1;
            }
            if at(text, t) != rest[0] {
                let spans = match_slash;
                return if spans { Outcome::AbortAll } else { Outcome::AbortToStarStar };
            }
        }
        let matched = run(rest, &text[t..]);
        if matched != Outcome::NoMatch {
            if !match_slash || matched != Outcome::AbortToStarStar {
                return matched;
            }
        } else if !match_slash && text[t] == b'/' {
            return Outcome::AbortToStarStar;
        }
        t += 1;
    }
    Outcome::AbortAll
}

/// Reads the class opened at `pattern[p]`: whether `c` is in it, and the index of
/// its `]`. Fails on a class that is not closed or names an unknown `[:class:]`;
/// such a pattern matches nothing, whatever the text.
fn bracket(pattern: &[u8], mut p: usize, c: u8) -> Result<(bool, usize), &'static str> {
    const OPEN: &str = "it has an unclosed [";
    p += 1;
    let negated = matches!(at(pattern, p), b'!' | b'^');
    if negated {
        p += 1;
    }
    let (mut matched, mut previous) = (false, 0);
    loop {
        let mut b = at(pattern, p);
        match b {
            0 => return Err(OPEN),
            b'\\' => {
                p += 1;
                b = at(pattern, p);
                if b == 0 {
                    return Err(OPEN);
                }
                matched |= c == b;
            }
            b'-' if previous != 0 && !matches!(at(pattern, p + 1), 0 | b']') => {
                p += 1;
                if pattern[p] == b'\\' {
                    p += 1;
                }
                let end = at(pattern, p);
                if end == 0 {
                    return Err(OPEN);
                }
                matched |= (previous..=end).contains(&c);
                b = 0;
            }
            b'[' if at(pattern, p + 1) == b':' => {
                let close = pattern[p + 2..].iter().position(|b| *b == b']').ok_or(OPEN)? + p + 2;
                // Without the closing `:]` it is a plain `[` in the set.
                if close == p + 2 || pattern[close - 1] != b':' {
                    matched |= c == b'[';
                } else {
                    matched |= in_class(&pattern[p + 2..close - 1], c)?;
                    p = close;
                    b = 0;
                }
            }
            _ => matched |= c == b,
        }
        previous = b;
        p += 1;
        if at(pattern, p) == b']' {
            return Ok((matched != negated, p));
        }
    }
}

/// git's own character classes: ASCII only, and its white space knows neither
/// vertical tab nor form feed.
fn in_class(class: &[u8], c: u8) -> Result<bool, &'static str> {
    let space = matches!(c, b' ' | b'\t' | b'\n' | b'\r');
    Ok(match class {
        b"alnum" => c.is_ascii_alphanumeric(),
        b"alpha" => c.is_ascii_alphabetic(),
        b"blank" => matches!(c, b' ' | b'\t'),
        b"cntrl" => c.is_ascii_control(),
        b"digit" => c.is_ascii_digit(),
        b"graph" => matches!(c, 0x21..=0x7e),
        b"lower" => c.is_ascii_lowercase(),
        b"print" => matches!(c, 0x20..=0x7e),
        b"punct" => c.is_ascii_punctuation(),
        b"space" => space,
        b"upper" => c.is_ascii_uppercase(),
        b"xdigit" => c.is_ascii_hexdigit(),
        _ => return Err("it names an unknown [:class:]"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_as_git_does() {
        for (pattern, text, want) in [
            ("*.c", "a.c", true),
            ("*.c", "d/a.c", false),
            ("a/**/b", "a/b", true),
            ("a/**/b", "a/x/y/b", true),
            ("a/**", "a/b/c", true),
            ("a/**", "a", false),
            ("**/b", "b", true),
            ("a?c", "a/c", false),
            ("a[/]c", "a/c", false),
            ("[[:digit:]]x", "7x", true),
            ("[!a-c]", "d", true),
            ("[^a-c]", "b", false),
            ("[]-]x", "]x", true),
            ("[a\\-z]", "-", true),
            ("{a,b}", "a", false),
            ("{a,b}", "{a,b}", true),
            ("\\[a", "[a", true),
            ("*a*b*c", "xaxbxc", true),
            ("*a*b*c", "xaxbx", false),
        ] {
            assert_eq!(wildmatch(pattern.as_bytes(), text.as_bytes()), want, "{pattern} {text}");
        }
    }

    #[test]
    fn patterns_that_match_nothing_are_named() {
        for bad in ["[a", "a\\", "[[:foo:]]", "[a-", "x[!", "[\\", "[[:digit:"] {
            assert!(check(bad.as_bytes()).is_err(), "{bad}");
        }
        for good in ["[]a]", "a\\\\", "[[:digit:]]", "]", "[[:]", "a]"] {
            assert!(check(good.as_bytes()).is_ok(), "{good}");
        }
    }
}
