# Form: comments with #, // and /* */, at ends of lines, tabs, blank lines after a brace
# Nomad: accepted
# allostat: accepted
job "margin" { # the shop

	// a line
	type = "service" /* inline */
	group "main" {

		/*
		task "old" {}
		*/
		task "app" {
			driver = "raw_exec" // here
			config {
				command = "/bin/true" # there
			}
		}
	}
}
