/* browser.mjs - reports in a browser, opened from disk with the network cut. */
import { run } from "./tap.mjs";
import { findBrowser, openBrowser } from "./drive.mjs";
import { pages } from "./pages.mjs";
import { speed } from "./speed.mjs";

const path = findBrowser();
if (!path) console.log("1..0 # SKIP no chromium is installed here");
else {
    const browser = await openBrowser(path);
    try {
        pages(browser);
        speed(browser);
        await run();
    } finally {
        await browser.close();
    }
}
