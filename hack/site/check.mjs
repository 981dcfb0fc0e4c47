// SPDX-License-Identifier: Apache-2.0
// Checks the site that was built: every link and picture of a page leads to a file of it, and to a heading that is there. The
// build itself looks at links between pages only.
import fs from 'node:fs'
import path from 'node:path'

const site = path.resolve('../../bin/site')
const base = process.env.SITE_BASE ?? '/'
const pages = fs.readdirSync(site, { recursive: true }).filter((f) => f.endsWith('.html') && f !== '404.html')
const text = new Map(pages.map((f) => [f, fs.readFileSync(path.join(site, f), 'utf8')]))
const ids = new Map([...text].map(([f, t]) => [f, new Set([...t.matchAll(/\sid="([^"]+)"/g)].map((m) => m[1]))]))

// fileOf is the file of the site that an address means.
function fileOf(at) {
  const inside = at.slice(base.length)
  return [inside, inside + '.html', path.posix.join(inside, 'index.html')].find((f) => fs.existsSync(path.join(site, f)) && !fs.statSync(path.join(site, f)).isDirectory())
}

const wrong = []
for (const [page, t] of text) {
  for (const [, at] of t.matchAll(/\s(?:href|src)="([^"]+)"/g)) {
    if (/^(https?:|mailto:|data:)/.test(at)) continue
    const url = new URL(at.replaceAll('&amp;', '&'), 'https://site' + base + page.replace(/(^|\/)index\.html$/, '$1').replace(/\.html$/, ''))
    const file = fileOf(decodeURI(url.pathname))
    if (!file) wrong.push(`${page}: ${at} leads nowhere`)
    else if (url.hash && ids.has(file) && !ids.get(file).has(decodeURIComponent(url.hash.slice(1)))) wrong.push(`${page}: ${file} has no heading ${url.hash}`)
  }
}
if (wrong.length) {
  console.error([...new Set(wrong)].join('\n'))
  process.exit(1)
}
console.log(`${pages.length} pages, every link leads to something`)
