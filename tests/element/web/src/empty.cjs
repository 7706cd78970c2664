// What Node.js modules are in a browser.
module.exports = {};
