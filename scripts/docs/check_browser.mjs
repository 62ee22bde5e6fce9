// Opens the documents' site in Chromium: check_browser.mjs OUTDIR BROWSER. OUTDIR is the folder of all versions.
//
// Serves the folder on a free port of this machine. Fails if a page has an error, requests anything from another host,
// or lacks its content: text, search, drawings, selector of versions, reference of the API.
import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { extname, join, normalize } from "node:path";
import { chromium } from "playwright-core";

const [outdir, browserPath] = process.argv.slice(2);
const TYPES = { ".css": "text/css", ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".json": "application/json", ".svg": "image/svg+xml", ".png": "image/png", ".md": "text/plain; charset=utf-8", ".txt": "text/plain; charset=utf-8" };
const BROWSER_PATIENCE_MS = 60_000;

const server = createServer(async (request, answer) => {
    const path = normalize(decodeURIComponent(new URL(request.url, "http://site").pathname));
    try {
        const body = await readFile(join(outdir, path.endsWith("/") ? path + "index.html" : path));
        answer.writeHead(200, { "Content-Type": TYPES[extname(path)] ?? "text/html; charset=utf-8" }).end(body);
    } catch {
        answer.writeHead(404).end();
    }
});
await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
const site = `http://127.0.0.1:${server.address().port}`;

const faults = [];
const expect = (what, found) => {
    console.log(`${found ? "ok     " : "FOUND  "} ${what}`);
    if (!found) faults.push(what);
};

const browser = await chromium.launch({ executablePath: browserPath, args: process.getuid() === 0 ? ["--no-sandbox"] : [] });
try {
    const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
    context.setDefaultTimeout(BROWSER_PATIENCE_MS);
    const page = await context.newPage();
    let requests = 0;
    const broken = [];
    context.on("request", (request) => {
        requests += 1;
        const address = request.url();
        if (!address.startsWith(`${site}/`) && !/^(data|blob):/.test(address)) broken.push(`requests ${address}`);
    });
    context.on("response", (response) => {
        if (response.status() >= 400) broken.push(`${response.status()} for ${response.url()}`);
    });
    context.on("weberror", (error) => broken.push(`error: ${error.error().message}`));
    page.on("console", (message) => {
        // The viewer takes the underscores of operation ids for an old form of blanks.
        if (message.type() === "error" && !message.text().includes("escaping deep link")) broken.push(`console: ${message.text()}`);
    });

    // The first page leads to the newest version.
    await page.goto(`${site}/`);
    await page.waitForURL(`${site}/latest/index.html`);
    expect("the first page leads to latest/", (await page.textContent("h1")).includes("dispatchq"));
    for (const section of ["Producers", "Drivers, partners, providers", "Staff", "Operators", "Contributors"]) {
        expect(`the navigation has ${section}`, (await page.locator(".md-tabs__link", { hasText: section }).count()) === 1);
    }
    await page.waitForSelector(".md-version");
    const version = (await page.textContent(".md-version__current")).trim();
    expect(`the selector shows a version: ${version}`, /^\d+\.\d+\.\d+/.test(version));

    // Every page of llms.txt, which is made from the navigation, opens and has its heading.
    const listed = await (await fetch(`${site}/llms.txt`)).text();
    const pages = [...listed.matchAll(/\]\(\S*?\/latest\/(\S+)\.md\)/g)].map((match) => match[1].replace(/README$/, "index"));
    expect(`llms.txt lists ${pages.length} pages`, pages.length >= 50);
    let opened = 0;
    for (const name of pages) {
        const answer = await page.goto(`${site}/latest/${name}.html`, { waitUntil: "domcontentloaded" });
        if (answer.ok() && (await page.textContent("article h1")).trim().length > 0) opened += 1;
        else broken.push(`${name}.html has no heading`);
    }
    expect(`${opened} pages open`, opened === pages.length);

    // The theme puts each drawing into a closed shadow root, so only the size of its element is visible.
    for (const [name, drawings] of [["STATES", 1], ["DATA", 2]]) {
        await page.goto(`${site}/latest/${name}.html`);
        await page.waitForFunction((wanted) => {
            const drawn = [...document.querySelectorAll("div.mermaid")].filter((one) => one.getBoundingClientRect().height > 100);
            return drawn.length === wanted;
        }, drawings);
        expect(`the drawings of ${name} appear`, true);
    }

    // Search.
    await page.goto(`${site}/latest/GUIDE.html`);
    await page.click("label.md-search__icon[for=__search], .md-search__input");
    await page.fill(".md-search__input", "lateness");
    await page.waitForSelector(".md-search-result__link");
    const hits = await page.$$eval(".md-search-result__link", (links) => links.map((link) => link.href));
    expect(`the search finds "lateness" in ${hits.length} places`, hits.some((hit) => /(METRICS|RUNBOOK)\.html/.test(hit)));
    await page.click(".md-search-result__link");
    await page.waitForFunction(() => /lateness/i.test(document.querySelector("article")?.textContent ?? ""));
    expect("a hit opens a page with the word", true);

    // Reference of the API, at one operation.
    await page.goto(`${site}/latest/api.html`);
    const link = page.locator("a[href*='/create_order']").first();
    expect("the page API lists create_order", (await link.count()) === 1);
    await link.click();
    await page.waitForSelector("[id$='-create_order'].is-open");
    expect("the reference opens the operation", (await page.textContent("[id$='-create_order']")).includes("/api/v1/orders"));

    for (const fault of new Set(broken)) expect(fault, false);
    expect(`${requests} requests, ${broken.length} faults`, broken.length === 0 && requests > pages.length);
} finally {
    await browser.close();
    server.close();
}
process.exit(faults.length > 0 ? 1 : 0);
