job "w" {
	group "g" {
		task "日本語" {
			driver = "mock"
			meta = { "鍵" = "${x}" }
		}
	}
}
