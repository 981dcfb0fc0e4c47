// SPDX-License-Identifier: Apache-2.0
// The site of docs/. The side bar is what docs/README.md lists, and the pages of the directories that it names; a page that
// neither has is an error.
import fs from 'node:fs'
import path from 'node:path'
import { defineConfig } from 'vitepress'

const docs = path.resolve(process.cwd(), '../../docs')
const repository = 'https://github.com/syncopate-dev/syncopate'
const assets = path.resolve(process.cwd(), '../../bin/site-assets')
const leaves = /^(https?:|mailto:|#)/

// titleOf is the first heading of a page.
const titleOf = (page) => fs.readFileSync(path.join(docs, page), 'utf8').match(/^# (.+)$/m)[1].replaceAll('`', '')

const pagesIn = (dir) =>
  fs.readdirSync(path.join(docs, dir)).filter((f) => f.endsWith('.md') && f !== 'README.md').sort().map((f) => path.posix.join(dir, f))

const item = (page) => ({ text: titleOf(page), link: '/' + page.replace(/README\.md$/, '').replace(/\.md$/, '') })

// sidebar reads the groups of docs/README.md: headings, and links to pages below them. A link to a page named README.md stands
// for all of its directory.
function sidebar() {
  const listed = new Set(['README.md'])
  const groups = []
  for (const line of fs.readFileSync(path.join(docs, 'README.md'), 'utf8').split('\n')) {
    const heading = line.match(/^## (.+)$/)
    if (heading) groups.push({ text: heading[1], items: [], collapsed: false })
    const link = line.match(/^- \[([^\]]+)\]\(([^)#]+\.md)\)/)
    if (!link) continue
    const [, text, page] = link
    const entry = { ...item(page), text }
    listed.add(page)
    if (page.endsWith('/README.md')) {
      const rest = pagesIn(path.posix.dirname(page))
      rest.forEach((page) => listed.add(page))
      Object.assign(entry, { items: rest.map(item), collapsed: true })
    }
    groups.at(-1).items.push(entry)
  }
  const all = fs.readdirSync(docs, { recursive: true }).map((f) => f.split(path.sep).join('/')).filter((f) => f.endsWith('.md'))
  const missing = all.filter((page) => !listed.has(page))
  if (missing.length) throw new Error(`docs/README.md does not list ${missing.join(', ')}`)
  return groups
}

// outward makes links that leave docs lead to the repository, if they lead to something.
function outward(md) {
  const render = md.renderer.rules.link_open ?? ((tokens, i, options, env, self) => self.renderToken(tokens, i, options))
  md.renderer.rules.link_open = (tokens, i, options, env, self) => {
    const href = tokens[i].attrGet('href')
    if (!leaves.test(href)) {
      const [file, hash] = decodeURI(href).split('#')
      const target = path.resolve(path.dirname(env.realPath ?? env.path), file)
      if (!fs.existsSync(target)) throw new Error(`${env.relativePath}: ${href} leads nowhere`)
      const inside = path.relative(docs, target)
      if (inside.startsWith('..') || !target.endsWith('.md')) {
        const kind = fs.statSync(target).isDirectory() ? 'tree' : 'blob'
        const at = path.relative(path.dirname(docs), target).split(path.sep).join('/')
        tokens[i].attrSet('href', `${repository}/${kind}/main/${at}${hash ? '#' + hash : ''}`)
      } else if (path.basename(target) === 'README.md') {
        tokens[i].attrSet('href', href.replace('README.md', 'index.md'))
      }
    }
    return render(tokens, i, options, env, self)
  }
}

// slugify makes the anchor of a heading as the hosting of the repository does, so that a link works in both places.
const slugify = (text) => text.trim().toLowerCase().replace(/[^\p{L}\p{N}\s_-]/gu, '').replace(/\s/g, '-')

// plain shows what looks like a tag and is none, as <uid>, as it stands.
function plain(md) {
  const tag = /^(<!--|<\/?(a|b|br|code|details|div|i|img|kbd|p|picture|source|sub|summary|sup)\b)/i
  for (const rule of ['html_inline', 'html_block']) {
    md.renderer.rules[rule] = (tokens, i) => (tag.test(tokens[i].content.trim()) ? tokens[i].content : md.utils.escapeHtml(tokens[i].content))
  }
}

fs.mkdirSync(assets, { recursive: true })
fs.copyFileSync(path.join(docs, 'icon.svg'), path.join(assets, 'icon.svg'))

export default defineConfig({
  srcDir: '../../docs',
  outDir: '../../bin/site',
  cacheDir: '../../bin/site-cache',
  base: process.env.SITE_BASE ?? '/',
  title: 'Syncopate',
  description: 'Workflow runs on Kubernetes, worked on by long-lived workers',
  lang: 'en',
  cleanUrls: true,
  rewrites: { 'README.md': 'index.md', ':dir/README.md': ':dir/index.md' },
  markdown: {
    anchor: { slugify },
    config: (md) => {
      outward(md)
      plain(md)
    },
  },
  // Our lines of code are longer than those of most.
  head: [['style', {}, '.VPDoc.has-aside .content-container { max-width: none !important }'], ['link', { rel: 'icon', type: 'image/svg+xml', href: (process.env.SITE_BASE ?? '/') + 'icon.svg' }]],
  vite: {
    publicDir: assets,
    // The pages are outside of where vue is installed.
    resolve: { alias: [
      { find: /^vue$/, replacement: path.resolve('node_modules/vue/dist/vue.runtime.esm-bundler.js') },
      { find: /^vue\/server-renderer$/, replacement: path.resolve('node_modules/vue/server-renderer/index.mjs') },
    ] },
  },
  themeConfig: {
    logo: '/icon.svg',
    sidebar: sidebar(),
    outline: [2, 3],
    search: { provider: 'local' },
    socialLinks: [{ icon: 'github', link: repository }],
  },
})
