//! Converts a resource of xDS into a tree. A parsed file is such a tree too, so the same code reads
//! both, with the same rules and errors.

use std::rc::Rc;

use envoy_types::pb::google::protobuf::value::Kind as JsonKind;
use envoy_types::pb::google::protobuf::{Struct, Value as JsonValue};

use super::error::{Position, Problem};
use super::limit::Unit;
use super::scalar::Kind;
use super::yaml::{MAX_DEPTH, MAX_NODES, Map, Node, Value, loading};
use crate::limits::xds::messages::{RateLimitConfig, RateLimitDescriptor, RateLimitPolicy};

/// The position of every node. It is never shown, because messages about a resource contain no
/// position.
const NOWHERE: Position = Position { line: 1, column: 1 };

/// Returns the tree of a resource. The bounds on its values and nesting levels are the same as for
/// a file.
pub(super) fn tree(resource: &RateLimitConfig) -> Result<Rc<Node>, Problem> {
    let mut tree = Tree::default();
    tree.map(|tree| {
        let mut fields = Fields::default();
        fields.text(tree, "domain", &resource.domain)?;
        fields.list(tree, "descriptors", &resource.descriptors, Tree::descriptor)?;
        Ok(fields)
    })
}

#[derive(Default)]
struct Tree {
    nodes: usize,
    depth: usize,
}

type Made = Result<Rc<Node>, Problem>;

impl Tree {
    fn node(&mut self, value: Value) -> Made {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(loading(NOWHERE, format!("the resource has more than {MAX_NODES} values")));
        }
        Ok(Rc::new(Node::new(NOWHERE, value)))
    }

    fn scalar(&mut self, text: impl Into<String>, kind: Kind) -> Made {
        self.node(Value::scalar(text.into(), kind))
    }

    /// Calls `make` one nesting level deeper. Returns an error if this level exceeds the maximum
    /// depth.
    fn nested<T>(
        &mut self,
        make: impl FnOnce(&mut Self) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        if self.depth >= MAX_DEPTH {
            let message = format!("lists and maps are nested more than {MAX_DEPTH} deep");
            return Err(loading(NOWHERE, message));
        }
        self.depth += 1;
        let made = make(self);
        self.depth -= 1;
        made
    }

    fn map(&mut self, make: impl FnOnce(&mut Self) -> Result<Fields, Problem>) -> Made {
        let Fields(map) = self.nested(make)?;
        self.node(Value::Map(map))
    }

    fn list<T>(&mut self, items: &[T], make: impl Fn(&mut Self, &T) -> Made) -> Made {
        let nodes = self.nested(|tree| items.iter().map(|item| make(tree, item)).collect());
        self.node(Value::List(nodes?))
    }

    fn descriptor(&mut self, descriptor: &RateLimitDescriptor) -> Made {
        self.map(|tree| {
            let mut fields = Fields::default();
            fields.text(tree, "key", &descriptor.key)?;
            fields.text(tree, "value", &descriptor.value)?;
            fields.flag(tree, "shadow_mode", descriptor.shadow_mode)?;
            fields.flag(tree, "detailed_metric", descriptor.detailed_metric)?;
            fields.flag(tree, "quota_mode", descriptor.quota_mode)?;
            if let Some(limit) = &descriptor.rate_limit {
                fields.add(tree, "rate_limit", |tree| tree.limit(limit))?;
            }
            if let Some(metadata) = &descriptor.metadata {
                fields.add(tree, "metadata", |tree| tree.json_struct(metadata))?;
            }
            fields.list(tree, "descriptors", &descriptor.descriptors, Self::descriptor)?;
            Ok(fields)
        })
    }

    fn limit(&mut self, limit: &RateLimitPolicy) -> Made {
        self.map(|tree| {
            let mut fields = Fields::default();
            fields.text(tree, "unit", &unit(limit.unit))?;
            let requests = limit.requests_per_unit.to_string();
            fields.add(tree, "requests_per_unit", |tree| tree.scalar(requests, Kind::Integer))?;
            fields.flag(tree, "unlimited", limit.unlimited)?;
            fields.text(tree, "name", &limit.name)?;
            fields.list(tree, "replaces", &limit.replaces, |tree, replaced| {
                tree.map(|tree| {
                    let mut fields = Fields::default();
                    fields.text(tree, "name", &replaced.name)?;
                    Ok(fields)
                })
            })?;
            Ok(fields)
        })
    }

    fn json_struct(&mut self, object: &Struct) -> Made {
        self.map(|tree| {
            let mut fields = Fields::default();
            for (key, value) in &object.fields {
                fields.add(tree, key, |tree| tree.json(value))?;
            }
            Ok(fields)
        })
    }

    fn json(&mut self, value: &JsonValue) -> Made {
        match &value.kind {
            None | Some(JsonKind::NullValue(_)) => self.scalar("null", Kind::Null),
            Some(JsonKind::BoolValue(value)) => self.scalar(value.to_string(), Kind::Bool(*value)),
            Some(JsonKind::NumberValue(value)) => self.scalar(value.to_string(), Kind::Float),
            Some(JsonKind::StringValue(value)) => self.scalar(value.clone(), Kind::Text),
            Some(JsonKind::ListValue(list)) => self.list(&list.values, Self::json),
            Some(JsonKind::StructValue(value)) => self.json_struct(value),
        }
    }
}

/// Returns the name of a unit. For a number that is not a unit, returns the text that
/// envoyproxy/ratelimit shows in its message.
fn unit(number: i32) -> String {
    match Unit::from_number(number) {
        Some(unit) => unit.name().to_owned(),
        None if number == 0 => "UNKNOWN".to_owned(),
        None => number.to_string(),
    }
}

/// The entries of a map. Texts, flags and lists with their default value are left out, because
/// Protobuf does not distinguish a default value and an absent field.
#[derive(Default)]
struct Fields(Map);

impl Fields {
    fn add(
        &mut self,
        tree: &mut Tree,
        key: &str,
        make: impl FnOnce(&mut Tree) -> Made,
    ) -> Result<(), Problem> {
        // Each key counts towards the maximum number of nodes, as in a file.
        tree.scalar("", Kind::Null)?;
        let node = make(tree)?;
        self.0.insert_text(NOWHERE, key, node);
        Ok(())
    }

    fn text(&mut self, tree: &mut Tree, key: &str, text: &str) -> Result<(), Problem> {
        if text.is_empty() {
            return Ok(());
        }
        self.add(tree, key, |tree| tree.scalar(text, Kind::Text))
    }

    fn flag(&mut self, tree: &mut Tree, key: &str, flag: bool) -> Result<(), Problem> {
        if !flag {
            return Ok(());
        }
        self.add(tree, key, |tree| tree.scalar("true", Kind::Bool(true)))
    }

    fn list<T>(
        &mut self,
        tree: &mut Tree,
        key: &str,
        items: &[T],
        make: impl Fn(&mut Tree, &T) -> Made,
    ) -> Result<(), Problem> {
        if items.is_empty() {
            return Ok(());
        }
        self.add(tree, key, |tree| tree.list(items, make))
    }
}
