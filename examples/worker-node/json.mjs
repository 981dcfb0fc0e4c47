// SPDX-License-Identifier: Apache-2.0
// What is no output. JSON.stringify makes null, {} or nothing of much that JSON does not have, and who gets the output would not know.

// What else there is, as a Map, a Response or bytes, is {} for JSON.stringify, or its insides. An instance of a class is an Object, one with a toJSON is what that says.
const forms = new Set(["Object", "Array", "String", "Boolean", "Number", "Null"]);
const half = /\p{Surrogate}/u; // of a pair, which UTF-8 does not have

// why says what JSON does not have of a member, or nothing. Undefined is a member that is absent, but not in a list.
function why(holder, key, value) {
  const type = typeof value, kind = Object.prototype.toString.call(value).slice(8, -1), raw = holder[key];
  if (kind === "Number" && !Number.isFinite(Number(value))) return String(value); // also new Number(NaN)
  if (type === "function" || type === "symbol") return `a ${type}`;
  if (type === "undefined" && Array.isArray(holder)) return "undefined in a list";
  if (type === "object" && !forms.has(kind)) return `what is of the type ${kind}`;
  if (raw instanceof Date && Number.isNaN(raw.getTime())) return "a Date that is none";
  if (half.test(key) || (kind === "String" && half.test(value))) return "half of a surrogate pair";
}

// text is a value as JSON, or undefined if there is none. What has no JSON form throws.
export function text(output) {
  const json = JSON.stringify(output, function (key, value) { // this is what the member is of
    const what = why(this, key, value);
    if (what) throw new Error(`${what} has no JSON form`);
    return value;
  });
  if (json === undefined && output !== undefined) throw new Error(`a ${typeof output} has no JSON form`); // toJSON gave nothing
  return json;
}
