/* tap.mjs - tests in order, as TAP: what tools/run_tests reads. */

export class Skip extends Error {}

const tests = [];
export const test = (name, body) => tests.push({ name, body });
export const note = (text) => console.log(`# ${text}`);

/* Runs them; the exit status says whether all went well. */
export async function run() {
    let failed = 0;
    console.log(`1..${tests.length}`);
    for (const [i, { name, body }] of tests.entries()) {
        try {
            await body();
            console.log(`ok ${i + 1} - ${name}`);
        } catch (error) {
            if (error instanceof Skip) console.log(`ok ${i + 1} - ${name} # SKIP ${error.message}`);
            else {
                failed++;
                console.log(`not ok ${i + 1} - ${name}`);
                console.log(String(error.stack ?? error).replace(/^/gm, "# "));
            }
        }
    }
    process.exitCode = failed ? 1 : 0;
}
