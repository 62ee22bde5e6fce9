"""Compares the types written by hand with the schemas of the API's document: fields.py DOCUMENT FILE ...

Every struct of Go or Rust that has the name of a schema must have exactly its members. Exits with 1 on a difference.
"""

import json
import re
import sys

document, files = json.load(open(sys.argv[1], encoding="utf-8")), sys.argv[2:]
schemas, found, compared = document["components"]["schemas"], [], 0


def members(schema):
    """Returns the members of a schema, with those of the schemas that it extends."""
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rsplit("/", 1)[1]]
    inherited = [members(part) for part in schema.get("allOf", [])]
    return set(schema.get("properties", {})).union(*inherited)


def structs(text):
    """Yields each struct's name and its members as they are in JSON."""
    for name, body in re.findall(r"^type (\w+) struct \{\n(.*?)^\}", text, re.M | re.S):
        embedded = re.findall(r"^\t(\w+)$", body, re.M)
        yield name, set(re.findall(r'`json:"(\w+)', body)), embedded
    for name, body in re.findall(r"^pub struct (\w+) \{\n(.*?)^\}", text, re.M | re.S):
        embedded = re.findall(r"#\[serde\(flatten\)\]\s*pub \w+: (\w+)", body)
        plain = re.sub(r"#\[serde\(flatten\)\]\s*pub \w+: \w+,", "", body)
        yield name, set(re.findall(r"pub (?:r#)?(\w+):", plain)), embedded


for file in files:
    own = {name: (fields, embedded) for name, fields, embedded in structs(open(file, encoding="utf-8").read())}
    for name, (fields, embedded) in own.items():
        if name not in schemas:
            continue
        compared += 1
        fields = fields.union(*(own[one][0] for one in embedded))
        if fields != members(schemas[name]):
            found.append(f"{file}: {name} differs from the document in {sorted(fields ^ members(schemas[name]))}")
if compared < 10:
    found.append(f"only {compared} types have the name of a schema: does this check still read {files}?")
print("\n".join(found) or f"{compared} types agree with the document")
sys.exit(bool(found))
