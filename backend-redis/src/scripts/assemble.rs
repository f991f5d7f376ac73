//! Assembles a script from the Lua files of this folder. Directives in the comments of the Lua
//! files control the assembly.

use std::borrow::Cow;

use crate::values;

/// Defines `FILES`, which maps the name of each Lua file, without `.lua`, to its text.
#[cfg(not(tidegate_scripts_from_dir))]
macro_rules! files {
    ($($name:literal),+ $(,)?) => {
        const FILES: &[(&str, &str)] = &[$(($name, include_str!(concat!($name, ".lua")))),+];
    };
}

#[cfg(not(tidegate_scripts_from_dir))]
files![
    "batch",
    "batch_with_holds",
    "constants",
    "hold",
    "id",
    "lib/epoch",
    "lib/levels",
    "lib/now",
    "lib/read_keys",
    "lib/record",
    "lib/rules",
    "lib/settlement",
    "lib/state_holds",
    "lib/ttl",
    "lib/usual_slots",
    "lib/value",
    "lib/write",
    "rules/concurrent",
    "rules/fair_pool",
    "rules/fixed_window",
    "rules/interval_bucket",
    "rules/quota",
    "rules/sliding_counter",
    "rules/sliding_log",
    "rules/token_bucket",
    "settle",
    "settle_single",
    "settle_with_holds",
    "single",
    "usual",
];

#[cfg(not(tidegate_scripts_from_dir))]
pub(super) fn file(name: &str) -> Option<Cow<'static, str>> {
    FILES.iter().find(|(file, _)| *file == name).map(|(_, text)| Cow::Borrowed(*text))
}

/// Returns the text of a Lua file in the folder that `TIDEGATE_SCRIPTS_DIR` names, so that
/// `.ci/mutants` can try changed scripts without a build for each change. Only a build with `--cfg
/// tidegate_scripts_from_dir` has this function.
#[cfg(tidegate_scripts_from_dir)]
pub(super) fn file(name: &str) -> Option<Cow<'static, str>> {
    let dir = std::env::var_os("TIDEGATE_SCRIPTS_DIR")?;
    let path = std::path::Path::new(&dir).join(name).with_extension("lua");
    std::fs::read_to_string(path).ok().map(Cow::Owned)
}

/// A name in a script, and its meaning: the file that a directive inserts, or the text that
/// replaces a placeholder.
pub(super) type Meaning<'a> = (&'a str, &'a str);

/// Assembles a script from its entry, the first file of the script. The flags select the lines
/// between `@when` and `@end`.
///
/// A directive that cannot be resolved stays in the script, so that a test can detect it.
pub(super) fn assemble(entry: &str, flags: &[&str], meanings: &[Meaning<'_>]) -> String {
    assemble_from(&file, entry, flags, meanings)
}

fn assemble_from(
    file: &dyn Fn(&str) -> Option<Cow<'static, str>>,
    entry: &str,
    flags: &[&str],
    meanings: &[Meaning<'_>],
) -> String {
    let mut assembly = Assembly { file, flags, included: vec![], text: String::new() };
    assembly.add(entry, meanings, "");
    assembly.text
}

struct Assembly<'a> {
    file: &'a dyn Fn(&str) -> Option<Cow<'static, str>>,
    flags: &'a [&'a str],
    /// The targets of `@include` that were already added to the text.
    included: Vec<String>,
    text: String,
}

impl Assembly<'_> {
    /// Adds a part of a file. The target `file.section` means a section of the file. The target
    /// `file` means the lines before the first section.
    fn add(&mut self, target: &str, meanings: &[Meaning<'_>], indent: &str) {
        let (name, section) = target.split_once('.').unwrap_or((target, ""));
        let Some(text) = (self.file)(name) else {
            return self.add_line(indent, &format!("--- @missing {name}"), meanings);
        };
        let mut current = "";
        // The list contains, for each `@when` that has no `@end` yet, whether the lines after it
        // are selected.
        let mut selected: Vec<bool> = vec![];
        for line in text.lines() {
            let code = line.trim_start();
            let indent = format!("{indent}{}", &line[..line.len() - code.len()]);
            let (directive, arguments) = directive(code).unwrap_or_default();
            match directive {
                "section" => current = arguments,
                _ if current != section => {}
                "when" => {
                    let flags = |flag: &str| self.flags.contains(&flag);
                    selected.push(arguments.split_whitespace().any(flags));
                }
                "end" => drop(selected.pop()),
                _ if selected.contains(&false) => {}
                "include" | "inline" => {
                    let (target, meanings) = resolve(arguments, meanings);
                    if directive == "include" {
                        if self.included.contains(&target) {
                            continue;
                        }
                        self.included.push(target.clone());
                    }
                    self.add(&target, &meanings, &indent);
                }
                "" if code.starts_with("---") => {}
                _ => self.add_line(&indent, code, meanings),
            }
        }
    }

    fn add_line(&mut self, indent: &str, code: &str, meanings: &[Meaning<'_>]) {
        self.text.push_str(if code.is_empty() { "" } else { indent });
        if code.starts_with("--") {
            self.text.push_str(code);
        } else {
            self.add_code(code, meanings);
        }
        self.text.push('\n');
    }

    /// Adds code. Placeholders are replaced in the code, and in the text that replaces a
    /// placeholder.
    fn add_code(&mut self, code: &str, meanings: &[Meaning<'_>]) {
        let is_of_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let mut rest = code;
        while let Some(start) = rest.find(is_of_word) {
            let (between, from_word) = rest.split_at(start);
            let end = from_word.find(|c| !is_of_word(c)).unwrap_or(from_word.len());
            let (word, after) = from_word.split_at(end);
            self.text.push_str(between);
            let own = find(meanings, word).map(Cow::Borrowed);
            match own.or_else(|| constant(word)) {
                Some(text) => self.add_code(&text, meanings),
                None => self.text.push_str(word),
            }
            rest = after;
        }
        self.text.push_str(rest);
    }
}

fn directive(code: &str) -> Option<(&str, &str)> {
    let directive = code.strip_prefix("--- @")?.trim_end();
    Some(directive.split_once(' ').unwrap_or((directive, "")))
}

/// Resolves the arguments of a directive, such as `usual.group RULE=rules/token_bucket`. Returns
/// the target, and the meanings of names in the lines of the target.
fn resolve<'a>(arguments: &'a str, meanings: &[Meaning<'a>]) -> (String, Vec<Meaning<'a>>) {
    let mut words = arguments.split_whitespace();
    let target = words.next().unwrap_or_default();
    let target = find(meanings, target).unwrap_or(target).to_owned();
    let own = words.filter_map(|word| word.split_once('='));
    (target, own.chain(meanings.iter().copied()).collect())
}

fn find<'a>(meanings: &[Meaning<'a>], name: &str) -> Option<&'a str> {
    meanings.iter().find(|(meant, _)| *meant == name).map(|(_, text)| *text)
}

/// Returns the literal that replaces a constant. The name of a constant is in capitals.
fn constant(name: &str) -> Option<Cow<'static, str>> {
    if !name.starts_with(|c: char| c.is_ascii_uppercase()) {
        return None;
    }
    values::literal(name).or_else(|| {
        let constants = file("constants")?;
        let literal = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(" = ")?.to_owned());
        constants.lines().find_map(literal).map(Cow::Owned)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assemble(
        files: &[(&str, &'static str)],
        flags: &[&str],
        meanings: &[Meaning<'_>],
    ) -> String {
        let file = |name: &str| {
            let file = files.iter().find(|(file, _)| *file == name);
            file.map(|(_, text)| Cow::Borrowed(*text))
        };
        assemble_from(&file, "entry", flags, meanings)
    }

    #[test]
    fn a_file_is_included_once_and_inlined_each_time_with_its_indentation() {
        let files = [
            (
                "entry",
                "do\n  --- @include once\n  --- @include once\n  --- @inline text\nend\n--- @inline text",
            ),
            ("once", "local function f()\n\n  return 1\nend"),
            ("text", "f()"),
        ];
        let expected = "do\n  local function f()\n\n    return 1\n  end\n  f()\nend\nf()\n";
        assert_eq!(assemble(&files, &[], &[]), expected);
    }

    #[test]
    fn a_section_ends_where_the_next_one_begins() {
        let file = "head()\n--- @section a\na()\n--- @section b\nb()\n";
        let entry = "--- @inline parts.b\n--- @inline parts.a\n--- @inline parts";
        assert_eq!(assemble(&[("entry", entry), ("parts", file)], &[], &[]), "b()\na()\nhead()\n");
    }

    #[test]
    fn lines_are_selected_by_any_flag_of_each_enclosing_when() {
        let entry = "--- @when a b\nab()\n--- @when c\nabc()\n--- @end\n--- @end\nall()";
        let files = [("entry", entry)];
        assert_eq!(assemble(&files, &["b"], &[]), "ab()\nall()\n");
        assert_eq!(assemble(&files, &["a", "c"], &[]), "ab()\nabc()\nall()\n");
        assert_eq!(assemble(&files, &["c"], &[]), "all()\n");
    }

    #[test]
    fn a_name_stands_for_a_file_that_the_script_or_the_directive_binds() {
        let files = [
            ("entry", "--- @inline RULE\n--- @inline part RULE=two"),
            ("part", "--- @inline RULE"),
            ("one", "one()"),
            ("two", "two()"),
        ];
        assert_eq!(assemble(&files, &[], &[("RULE", "one")]), "one()\ntwo()\n");
    }

    #[test]
    fn placeholders_are_replaced_in_code_and_not_in_comments() {
        let files = [(
            "entry",
            "-- LOG\n  -- RECORD\nif FORM and KIND == BUCKET then BUCKETS = RECORD end -- RECORD",
        )];
        let meanings = [("KIND", "LOG"), ("FORM", "#value == INTERVAL_SIZE")];
        let code = "if #value == 29 and 0x94 == 0x96 then BUCKETS = 14 end -- 14";
        assert_eq!(assemble(&files, &[], &meanings), format!("-- LOG\n  -- RECORD\n{code}\n"));
    }

    #[test]
    fn source_documentation_is_left_out_and_a_directive_without_a_meaning_is_not() {
        let files = [("entry", "--- Text.\n-- Comment.\n--- @inlin x\n--- @inline nowhere")];
        let expected = "-- Comment.\n--- @inlin x\n--- @missing nowhere\n";
        assert_eq!(assemble(&files, &[], &[]), expected);
    }

    #[test]
    fn a_constant_of_the_crate_is_not_defined_again_for_the_scripts() {
        for line in file("constants").unwrap().lines() {
            let name = line.split(" = ").next().unwrap_or_default();
            assert_eq!(values::literal(name), None, "{name}");
        }
    }
}
