// Shows the server's OpenAPI document: for each path what it takes, what it answers, and a curl line.

import { curlLine, fetchJson, made, page } from "./server.js";

let api;

/** An object of the document, from its reference if that is what stands there. */
const resolved = (object) =>
  object?.$ref ? object.$ref.slice(2).split("/").reduce((inner, name) => inner[name], api) : object;

function typeOf(schema) {
  const { type, items, anyOf, enum: choices, const: only } = resolved(schema);
  if (anyOf) return anyOf.map(typeOf).join(" or ");
  if (type === "array") return items ? `list of ${typeOf(items)}` : "list";
  return [type ?? (only ?? choices?.join(" or ") ?? "any JSON")].flat().join(" or ");
}

function membersOf(schema) {
  const { properties = {}, required = [] } = schema;
  const rows = Object.entries(properties).map(([name, member]) => {
    const row = made("tr", "");
    const { description = "", default: usual } = resolved(member);
    const notes = [required.includes(name) && "required", usual !== undefined && `default ${usual}`].filter(Boolean).join(", ");
    const cell = made("th", "", { scope: "row" });
    cell.append(made("code", name));
    row.append(cell, made("td", typeOf(member)), made("td", [description, notes && `(${notes})`].join(" ")));
    return row;
  });
  const table = made("table", "", { class: "words" });
  const head = made("tr", "");
  head.append(...["Member", "Type", "Meaning"].map((text) => made("th", text, { scope: "col" })));
  table.append(made("caption", "Members of the body"), head, ...rows);
  const scroll = made("div", "", { class: "scroll" });
  scroll.append(table);
  return scroll;
}

function sectionOf(path, method, operation, parameters) {
  const section = made("section", "");
  const heading = made("h2", "");
  heading.append(made("code", `${method.toUpperCase()} ${path}`));
  section.append(heading, made("p", operation.summary));
  const content = operation.requestBody?.content["application/json"];
  if (content) section.append(membersOf(content.schema));
  const { description, content: answer } = resolved(operation.responses["200"]);
  const type = answer["application/json"] && typeOf(answer["application/json"].schema);
  section.append(made("p", `Answer: ${description}${type?.startsWith("list") ? ` (${type})` : ""}`));
  let target = path;
  const query = new URLSearchParams();
  for (const { name, in: place, example } of [...parameters, ...(operation.parameters ?? [])].map(resolved)) {
    if (place === "path") target = target.replace(`{${name}}`, encodeURIComponent(example));
    else query.set(name, example);
  }
  if (query.size) target += `?${query}`;
  const body = content && JSON.stringify(content.example);
  const isOpen = operation.security?.length === 0;
  section.append(made("pre", curlLine(target.slice(1), body, isOpen ? "" : undefined)));
  return section;
}

async function show() {
  const model = page.model.value;
  api = await fetchJson(model ? `openapi.json?model=${encodeURIComponent(model)}` : "openapi.json");
  page.description.textContent = api.info.description;
  if (!model) page.model.replaceChildren(...api.components.schemas.Model.enum.map((name) => new Option(name, name)));
  const sections = Object.entries(api.paths).flatMap(([path, { parameters = [], ...operations }]) =>
    Object.entries(operations).map(([method, operation]) => sectionOf(path, method, operation, parameters)),
  );
  page.paths.replaceChildren(...sections);
}

function run() {
  page.status.textContent = "";
  show().catch((error) => {
    page.status.textContent = error.message;
    page.status.className = "error";
  });
}

page.model.addEventListener("change", run);
run();
