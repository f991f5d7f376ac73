//! Parses YAML into a tree. Each node of the tree contains its position in the file. The size of
//! the tree is bounded.
//!
//! An alias shares the memory of its anchor's value, so that a small file cannot fill the memory.
//! But it counts towards the bounds on values and texts as a copy of the value, because a small
//! file could otherwise cause hours of work.

use std::collections::HashMap;
use std::rc::Rc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError};

use super::error::{Position, Problem};
use super::scalar::{Kind, kind_of_plain};

/// The maximum nesting depth of lists and maps.
pub(super) const MAX_DEPTH: usize = 64;

/// The maximum number of nodes. An alias counts as all nodes of its value.
pub(super) const MAX_NODES: usize = 500_000;

/// The maximum total length of all texts in bytes. An alias counts as all texts of its value.
pub(super) const MAX_TEXT_BYTES: usize = 16 << 20;

/// A value and its position.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) at: Position,
    pub(super) value: Rc<Value>,
    size: Size,
}

/// The size of a tree. An alias counts as a copy of its value.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    nodes: usize,
    text_bytes: usize,
}

#[derive(Debug, Clone)]
pub(super) enum Value {
    Scalar(Scalar),
    List(Vec<Rc<Node>>),
    Map(Map),
}

#[derive(Debug, Clone)]
pub(super) struct Scalar {
    pub(super) text: Rc<str>,
    pub(super) kind: Kind,
    /// The distance in characters from the position of the scalar to its text: 1 for a scalar in
    /// quotes, and 0 without quotes. It is `None` for a block scalar (`|` or `>`), whose line
    /// breaks can differ from the line breaks of the file.
    pub(super) offset: Option<usize>,
}

/// The entries of a map in the order of the file. Each key occurs once.
#[derive(Debug, Clone, Default)]
pub(super) struct Map {
    pub(super) entries: Vec<(Key, Rc<Node>)>,
    /// The keys that occur again in this map. The last value of a key applies.
    pub(super) duplicates: Vec<Key>,
    /// The index of each key in `entries`.
    indices: HashMap<Rc<str>, usize>,
}

#[derive(Debug, Clone)]
pub(super) struct Key {
    pub(super) at: Position,
    pub(super) scalar: Scalar,
}

impl Value {
    pub(super) fn scalar(text: String, kind: Kind) -> Self {
        Self::Scalar(Scalar { text: text.into(), kind, offset: None })
    }
}

impl Node {
    pub(super) fn new(at: Position, value: Value) -> Self {
        Self { at, value: Rc::new(value), size: Size { nodes: 1, text_bytes: 0 } }
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(&*self.value, Value::Scalar(scalar) if scalar.kind == Kind::Null)
    }
}

impl Map {
    pub(super) fn get(&self, key: &str) -> Option<&Rc<Node>> {
        self.indices.get(key).and_then(|&index| self.entries.get(index)).map(|(_, node)| node)
    }

    pub(super) fn insert_text(&mut self, at: Position, key: &str, node: Rc<Node>) {
        let scalar = Scalar { text: key.into(), kind: Kind::Text, offset: None };
        self.insert(Key { at, scalar }, node);
    }

    fn insert(&mut self, key: Key, node: Rc<Node>) {
        let index = *self.indices.entry(Rc::clone(&key.scalar.text)).or_insert(self.entries.len());
        match self.entries.get_mut(index) {
            Some(entry) => {
                self.duplicates.push(key.clone());
                *entry = (key, node);
            }
            None => self.entries.push((key, node)),
        }
    }

    /// Adds the entries of the maps under the key `<<` (a merge key of YAML) to the map, and
    /// returns the map. The map's own entries take precedence.
    fn merged(mut self) -> Result<Self, Problem> {
        let Some(node) = self.get("<<").cloned() else { return Ok(self) };
        self.entries.retain(|(key, _)| &*key.scalar.text != "<<");
        let own = std::mem::take(&mut self.entries);
        self.indices.clear();
        own.into_iter().for_each(|(key, node)| self.insert(key, node));
        let sources = match &*node.value {
            Value::List(nodes) => nodes.clone(),
            _ => vec![node],
        };
        for source in sources {
            let Value::Map(map) = &*source.value else {
                return Err(loading(
                    source.at,
                    "map merge requires map or sequence of maps as the value",
                ));
            };
            for (key, node) in &map.entries {
                if self.get(&key.scalar.text).is_none() {
                    self.insert(key.clone(), Rc::clone(node));
                }
            }
        }
        Ok(self)
    }
}

/// Parses the document in `text`. Returns `None` if there is no document, and an error if there are
/// two.
pub(super) fn parse(text: &str) -> Result<Option<Rc<Node>>, Problem> {
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| scan_error(&error))?;
        builder.take(event, position(span.start))?;
    }
    Ok(builder.root)
}

/// A list or a map whose end has not been parsed yet.
struct Open {
    at: Position,
    anchor: usize,
    /// The size of the tree when this list or map began.
    before: Size,
    items: Items,
}

enum Items {
    List(Vec<Rc<Node>>),
    Map { map: Map, key: Option<Key> },
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    /// The size of the part of the tree that was parsed so far.
    size: Size,
    anchors: HashMap<usize, Rc<Node>>,
    root: Option<Rc<Node>>,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, at: Position) -> Result<(), Problem> {
        match event {
            Event::DocumentStart(_) if self.root.is_some() => {
                Err(loading(at, "there is a second document in the file"))
            }
            Event::Scalar(text, style, anchor, tag) => {
                let is_text = style != ScalarStyle::Plain
                    || tag.is_some_and(|tag| tag.is_yaml_core_schema() && tag.suffix == "str");
                let kind = if is_text { Kind::Text } else { kind_of_plain(&text) };
                let offset = match style {
                    ScalarStyle::Plain => Some(0),
                    ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted => Some(1),
                    ScalarStyle::Literal | ScalarStyle::Folded => None,
                };
                let size = Size { nodes: 1, text_bytes: text.len() };
                self.grow(at, size)?;
                let value = Rc::new(Value::Scalar(Scalar { text: text.into(), kind, offset }));
                self.add(Rc::new(Node { at, value, size }), anchor)
            }
            Event::Alias(anchor) => match self.anchors.get(&anchor) {
                Some(node) => {
                    let node = Node { at, value: Rc::clone(&node.value), size: node.size };
                    self.grow(at, node.size)?;
                    self.add(Rc::new(node), 0)
                }
                None => Err(loading(at, "the anchor's value contains itself")),
            },
            Event::SequenceStart(anchor, _) => self.begin(at, anchor, Items::List(Vec::new())),
            Event::MappingStart(anchor, _) => {
                self.begin(at, anchor, Items::Map { map: Map::default(), key: None })
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            _ => Ok(()),
        }
    }

    fn begin(&mut self, at: Position, anchor: usize, items: Items) -> Result<(), Problem> {
        if self.open.len() >= MAX_DEPTH {
            return Err(loading(
                at,
                format!("lists and maps are nested more than {MAX_DEPTH} deep"),
            ));
        }
        self.open.push(Open { at, anchor, before: self.size, items });
        self.grow(at, Size { nodes: 1, text_bytes: 0 })
    }

    fn grow(&mut self, at: Position, by: Size) -> Result<(), Problem> {
        let Size { nodes, text_bytes } = &mut self.size;
        *nodes = nodes.saturating_add(by.nodes);
        *text_bytes = text_bytes.saturating_add(by.text_bytes);
        let message = if *nodes > MAX_NODES {
            format!("the file has more than {MAX_NODES} values, including values under aliases")
        } else if *text_bytes > MAX_TEXT_BYTES {
            format!(
                "the texts of the file have more than {MAX_TEXT_BYTES} bytes, including texts under aliases"
            )
        } else {
            return Ok(());
        };
        Err(loading(at, message))
    }

    fn end(&mut self) -> Result<(), Problem> {
        let Some(Open { at, anchor, before, items }) = self.open.pop() else { return Ok(()) };
        let value = match items {
            Items::List(nodes) => Value::List(nodes),
            Items::Map { map, .. } => Value::Map(map.merged()?),
        };
        let size = Size {
            nodes: self.size.nodes.saturating_sub(before.nodes),
            text_bytes: self.size.text_bytes.saturating_sub(before.text_bytes),
        };
        self.add(Rc::new(Node { at, value: Rc::new(value), size }), anchor)
    }

    fn add(&mut self, node: Rc<Node>, anchor: usize) -> Result<(), Problem> {
        if anchor != 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match &mut open.items {
            Items::List(nodes) => nodes.push(node),
            Items::Map { map, key } => match key.take() {
                Some(key) => map.insert(key, node),
                None => *key = Some(key_of(&node)?),
            },
        }
        Ok(())
    }
}

fn key_of(node: &Node) -> Result<Key, Problem> {
    match &*node.value {
        Value::Scalar(scalar) => Ok(Key { at: node.at, scalar: scalar.clone() }),
        Value::List(_) | Value::Map(_) => {
            Err(Problem::new(node.at, "config error, key is not of type string: a list or a map"))
        }
    }
}

/// Creates an error about reading a file. The message begins as in envoyproxy/ratelimit.
pub(super) fn loading(at: Position, message: impl std::fmt::Display) -> Problem {
    Problem::new(at, format!("error loading config file: {message}"))
}

fn scan_error(error: &ScanError) -> Problem {
    loading(position(*error.marker()), format!("yaml: {}", error.info()))
}

fn position(marker: Marker) -> Position {
    Position { line: marker.line().max(1), column: marker.col() + 1 }
}
