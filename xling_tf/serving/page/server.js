// Requests to the server, with the API key if it asks for one, and the same requests for curl.

export const page = Object.fromEntries([...document.querySelectorAll("[id]")].map((element) => [element.id, element]));

export function made(tag, text, attributes = {}) {
  const element = document.createElement(tag);
  element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

/** The JSON of an answer; with a body, the request is a POST. */
export async function fetchJson(path, body) {
  const key = sessionStorage.getItem("key"); // for this tab
  const request = { headers: key ? { authorization: `Bearer ${key}` } : {} };
  if (body) Object.assign(request, { method: "POST", body });
  const answer = await fetch(path, request).catch(() => {
    throw new Error("The server cannot be reached. Is it still running?");
  });
  if (answer.status === 401) {
    await askForKey(key);
    return fetchJson(path, body);
  }
  const json = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(`The server refused (${answer.status}): ${json.error?.message ?? json.error ?? answer.statusText}`);
  return json;
}

let asking;

/** Asks for the key, once for requests at the same time. `refused` is the key that the server did not accept. */
function askForKey(refused) {
  if (refused !== sessionStorage.getItem("key")) return; // Another request has asked since.
  asking ??= new Promise((resolve) => {
    page.access.hidden = false;
    page["key-note"].textContent = refused ? "The server did not accept this key." : "The server asks for an API key.";
    page.key.focus();
    page.access.onsubmit = (event) => {
      event.preventDefault();
      sessionStorage.setItem("key", page.key.value.trim());
      page.access.hidden = true;
      resolve();
    };
  }).finally(() => (asking = undefined));
  return asking;
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** The command line for a request; the key stays in the environment. */
export function curlLine(path, body, needsKey = sessionStorage.getItem("key")) {
  const parts = ["curl"];
  if (needsKey) parts.push('-H "Authorization: Bearer $XLING_TF_API_KEY"');
  if (body) parts.push(`-d ${quoted(body)}`);
  return [...parts, quoted(new URL(path, document.baseURI).href)].join(" ");
}
