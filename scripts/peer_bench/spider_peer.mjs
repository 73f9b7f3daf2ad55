// spider over some hosts, a website for each, run by bench_peers.py:
//
//     node spider_peer.mjs OUT SEED...
//
// The page "Website" of its book has the settings. Without a function for each
// page, as in the first example of the book, no page has to be handed to
// JavaScript: it cannot be faster. It decides by itself how many requests it
// makes at once. robots.txt is obeyed; bodies are not kept.

import { writeFileSync } from 'node:fs'
import { Website } from '@spider-rs/spider-rs'

const [out, ...seeds] = process.argv.slice(2)
const websites = seeds.map((seed) =>
  new Website(seed)
    .withRespectRobotsTxt(true)
    .withDepth(0) // no limit; the default is 25
    .withDelay(0)
    .withCaching(false)
    .build(),
)
await Promise.all(websites.map((website) => website.crawl()))
writeFileSync(out, websites.flatMap((website) => website.getLinks()).join('\n'))
