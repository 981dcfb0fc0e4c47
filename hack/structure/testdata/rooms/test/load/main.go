// Command load is a test by its folder.
package main

func main() {}
